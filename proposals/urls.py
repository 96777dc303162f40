"""Pages of proposals, reviews and the history."""

from __future__ import annotations

from django.urls import path

from proposals import views, views_launch

urlpatterns = [
    path("experiments/<int:pk>/proposals/", views.proposals, name="proposals"),
    path("experiments/<int:pk>/proposals/rejected/", views.rejected, name="rejected"),
    path("proposals/<int:pk>/decision/", views.decide, name="decide"),
    path("experiments/<int:pk>/launch/", views_launch.of_experiment, name="launch"),
    path("proposals/<int:pk>/launch/", views_launch.of_proposal, name="launch-proposal"),
    path("proposals/<int:pk>/launch/<str:name>", views_launch.download, name="launch-file"),
    path("history/", views.history, name="history"),
]
