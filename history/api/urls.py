"""Addresses below /api/history/."""

from __future__ import annotations

from rest_framework.routers import SimpleRouter

from history.api.views import ImportViewSet, RecordViewSet

router = SimpleRouter()
router.register("records", RecordViewSet, basename="history-record")
router.register("imports", ImportViewSet, basename="history-import")

urlpatterns = router.urls
