"""Pages of proposals, reviews and the history."""

from __future__ import annotations

from django.urls import path

from proposals import views

urlpatterns = [
    path("experiments/<int:pk>/proposals/", views.proposals, name="proposals"),
    path("experiments/<int:pk>/proposals/rejected/", views.rejected, name="rejected"),
    path("proposals/<int:pk>/decision/", views.decide, name="decide"),
    path("history/", views.history, name="history"),
]
