"""Addresses of launches below /api/."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import DefaultRouter

from launches.api.views import LaunchViewSet
from launches.api.views_report import FilesView, FileView, ReportView

router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False
router.register("launches", LaunchViewSet)

_RUN = "launches/<int:pk>/runs/<slug:arm>/<int:repeat>"
urlpatterns = [
    path("", include(router.urls)),
    path(f"{_RUN}/files/", FilesView.as_view(), name="report-files"),
    path(f"{_RUN}/files/<slug:sha256>/", FileView.as_view(), name="report-file"),
    path(f"{_RUN}/report/", ReportView.as_view(), name="report"),
]
