"""Addresses of campaigns below /api/."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import DefaultRouter

from campaigns.api.views import CampaignViewSet

router = DefaultRouter()
router.include_format_suffixes = False
router.include_root_view = False
router.register("campaigns", CampaignViewSet, basename="api-campaign")  # pages have the plain names

urlpatterns = [path("", include(router.urls))]
