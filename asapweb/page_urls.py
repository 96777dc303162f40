"""Addresses of the pages that look over everything."""

from __future__ import annotations

from django.urls import path

from asapweb import model_settings, views
from asapweb.explore import views as explore

urlpatterns = [
    path("", views.home, name="home"),
    path("experiments/", views.experiments, name="experiments"),
    path("experiments/picked/", views.picked, name="experiments_picked"),
    path("experiments/table.csv", views.experiments_table, name="experiments_table"),
    path("experiments/views/", views.save_view, name="save_view"),
    path("experiments/views/<int:pk>/delete/", views.delete_view, name="delete_view"),
    path("jump/", views.jump, name="jump"),
    path("explore/", explore.explore, name="explore"),
    path("explore/model/", explore.use_model, name="explore_model"),
    path("experiments/<int:pk>/explore/", explore.explore_experiment, name="explore_experiment"),
    path("settings/model/", model_settings.model, name="model_settings"),
    path("settings/model/test/", model_settings.test_model, name="test_model"),
    path("settings/retention/", model_settings.keep_payloads, name="keep_payloads"),
    path("accuracy/", explore.accuracy_page, name="accuracy"),
]
