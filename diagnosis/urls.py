"""Pages of a diagnosis."""

from __future__ import annotations

from django.urls import path

from diagnosis import views

urlpatterns = [
    path("experiments/<int:pk>/", views.experiment, name="experiment"),
    path("experiments/<int:pk>/ops/", views.ops, name="ops"),
    path("experiments/<int:pk>/ops/<int:rank>/", views.op, name="op"),
    path("experiments/<int:pk>/evidence/<str:ref>/", views.evidence, name="evidence"),
]
