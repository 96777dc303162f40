"""Addresses of the pages that look over everything."""

from __future__ import annotations

from django.urls import path

from asapweb import views

urlpatterns = [
    path("", views.home, name="home"),
    path("experiments/", views.experiments, name="experiments"),
    path("jump/", views.jump, name="jump"),
]
