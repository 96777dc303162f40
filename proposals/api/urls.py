"""Addresses below /api/."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import DefaultRouter

from accounts.api import AuditViewSet, MeView, TokensView, TokenView
from diagnosis.api import DiagnosisViewSet
from diagnosis.api_compare import CompareView
from experiments.api.model import PredictView, SearchView
from experiments.api.views import ExperimentViewSet, ProfileViewSet, RunViewSet
from proposals.api.compiling import PlanCompilationsView
from proposals.api.views import PlanViewSet, ProposalViewSet, ReviewsView
from proposals.api.views_loop import MeasurementViewSet, PlanRequestViewSet
from proposals.api.views_tools import ToolsView, ToolView

router = DefaultRouter()
router.include_format_suffixes = False
router.register("experiments", ExperimentViewSet)
router.register("profiles", ProfileViewSet)
router.register("runs", RunViewSet)
router.register("diagnoses", DiagnosisViewSet)
router.register("plans", PlanViewSet)
router.register("plan-requests", PlanRequestViewSet)
router.register("proposals", ProposalViewSet)
router.register("measurements", MeasurementViewSet)
router.register("audit", AuditViewSet, basename="api-audit")

urlpatterns = [
    path("me/", MeView.as_view(), name="api-me"),
    path("tokens/", TokensView.as_view(), name="api-tokens"),
    path("tokens/<str:key>/", TokenView.as_view(), name="api-token"),
    path("reviews/", ReviewsView.as_view(), name="api-reviews"),
    path("history/", include("history.api.urls")),
    path("knowledge/", include("knowledge.api.urls")),
    path("compare/", CompareView.as_view(), name="api-compare"),
    path("plans/<int:pk>/compilations/", PlanCompilationsView.as_view(), name="api-plan-compilations"),
    path("tools/", ToolsView.as_view(), name="api-tools"),
    path("tools/<str:name>/", ToolView.as_view(), name="api-tool"),
    path("predict/", PredictView.as_view(), name="api-predict"),
    path("search/", SearchView.as_view(), name="api-search"),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    path("", include(router.urls)),
]
