"""Pages of launches."""

from __future__ import annotations

from django.urls import path

from launches import views

urlpatterns = [
    path("proposals/<int:pk>/launches/", views.launches, name="launches"),
    path("launches/<int:pk>/", views.part, name="launch-state"),
    path("launches/<int:pk>/cancel/", views.cancel, name="launch-cancel"),
    path("launches/<int:pk>/token/", views.token, name="launch-token"),
    path("launches/<int:pk>/bundle/<slug:arm>.zip", views.bundle, name="launch-bundle"),
    path("settings/launching/", views.settings, name="launch-settings"),
    path("asap_report.py", views.report_file, name="asap-report"),
]
