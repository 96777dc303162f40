"""Addresses below /api/knowledge/."""

from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from knowledge.api.views import DocumentViewSet, KnowledgeSearchView, PassageViewSet

router = SimpleRouter()
router.register("passages", PassageViewSet, basename="knowledge-passages")
router.register("documents", DocumentViewSet, basename="knowledge-documents")

urlpatterns = [path("search/", KnowledgeSearchView.as_view({"get": "list"}), name="api-knowledge-search"), *router.urls]
