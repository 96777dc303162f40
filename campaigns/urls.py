"""Pages of tuning campaigns."""

from __future__ import annotations

from django.urls import path

from campaigns import views

urlpatterns = [
    path("experiments/<int:pk>/campaigns/", views.campaigns, name="campaigns"),
    path("campaigns/<int:pk>/", views.campaign, name="campaign"),
    path("campaigns/<int:pk>/change/", views.change, name="campaign-change"),
    path("campaigns/<int:pk>/difference/", views.difference, name="campaign-difference"),
    path("campaigns/<int:pk>/trials.csv", views.as_csv, name="campaign-csv"),
    path("campaigns/<int:pk>/trials/<int:number>/retry/", views.retry, name="trial-retry"),
]
