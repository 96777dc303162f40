"""Addresses of the dialogue below /api/."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import DefaultRouter

from dialogue.api.views import AnswerViewSet, HeldViewSet, ThreadViewSet

router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False
router.register("threads", ThreadViewSet)
router.register("answers", AnswerViewSet)
router.register("held", HeldViewSet)

urlpatterns = [
    path("", include(router.urls)),
]
