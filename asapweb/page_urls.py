"""Addresses of the pages that look over everything."""

from __future__ import annotations

from django.urls import path

from asapweb import views
from asapweb.explore import views as explore

urlpatterns = [
    path("", views.home, name="home"),
    path("experiments/", views.experiments, name="experiments"),
    path("jump/", views.jump, name="jump"),
    path("explore/", explore.explore, name="explore"),
    path("explore/model/", explore.use_model, name="explore_model"),
    path("experiments/<int:pk>/explore/", explore.explore_experiment, name="explore_experiment"),
    path("accuracy/", explore.accuracy_page, name="accuracy"),
]
