from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django_filters.utils import translate_validation
from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import exceptions, mixins, status
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from accounts.models import Role
from accounts.permissions import check, team_ids
from accounts.rest import Detail, Invalid, TeamObjects, number_param, team_for, validated
from history.api.serializers import (
    AlikeSerializer,
    ImportRequest,
    ImportSerializer,
    PageSerializer,
    RecordSerializer,
)
from history.models import HistoryRecord, RecordImport
from history.services import formats, imports, store
from history.services.formats import FORMATS
from history.services.search import RecordFilters, filtered, page, records, visible
from history.services.similar import similar

_TEAM = OpenApiParameter("team", OpenApiTypes.INT, description="Restrict to this team and the shipped records.")


class RecordViewSet(GenericViewSet[HistoryRecord]):
    """The shipped records and those of the caller's teams; a record of another team returns 404."""

    queryset = HistoryRecord.objects.none()
    serializer_class = RecordSerializer
    permission_classes = [IsAuthenticated]
    pagination_class = None
    filterset_class = RecordFilters
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[HistoryRecord]:
        return visible(team_ids(self.request.user)).defer("embedding", "search", "keywords")

    @extend_schema(
        operation_id="history_records_list",
        parameters=[
            _TEAM,
            OpenApiParameter("page", OpenApiTypes.INT, description="Number of the page, from 1."),
        ],
        filters=True,
        responses={200: forced_singular_serializer(PageSerializer), 400: Detail},
        tags=["history"],
    )  # fmt: skip
    def list(self, request: Request) -> Response:
        """Search the optimization database by facets, keywords and meaning; sorted and paginated."""
        records_page = page(_filters(request), number_param(request, "page") or 1)
        return Response(PageSerializer(records_page, context=self.get_serializer_context()).data)

    @extend_schema(operation_id="history_records_retrieve", responses=RecordSerializer, tags=["history"])
    def retrieve(self, request: Request, pk: str) -> Response:
        """One record with its before and after."""
        return Response(RecordSerializer(self.get_object()).data)

    @extend_schema(
        operation_id="history_records_destroy",
        responses={204: None, 403: Detail},
        description="Delete a record of the team; requires an administrator. Shipped records cannot be deleted.",
        tags=["history"],
    )
    def destroy(self, request: Request, pk: str) -> Response:
        record = self.get_object()
        if record.team_id is not None:
            check(request.user, record, Role.ADMINISTRATOR)
        store.delete(record, by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="history_records_similar",
        parameters=[
            OpenApiParameter("k", OpenApiTypes.INT, description="Number of results; default 5, at most 50."),
            _TEAM,
        ],
        responses=AlikeSerializer(many=True),
        tags=["history"],
    )
    @action(detail=True, methods=["get"])
    def similar(self, request: Request, pk: str) -> Response:
        """The records most similar to this one, each with the reason; empty if none is similar enough."""
        record = self.get_object()
        k = number_param(request, "k")
        similar_records = similar(_teams(request), record, k=5 if k is None else max(1, min(k, 50)))
        return Response(AlikeSerializer(similar_records, many=True).data)

    @extend_schema(
        operation_id="history_records_export",
        parameters=[OpenApiParameter("type", OpenApiTypes.STR, enum=FORMATS, description="default json"), _TEAM],
        filters=True,
        responses={
            (200, "application/json"): {"type": "array", "items": {"type": "object"}},
            (200, "application/jsonl"): OpenApiTypes.STR,
            (200, "text/csv"): OpenApiTypes.STR,
            400: Detail,
        },
        tags=["history"],
    )  # fmt: skip
    @action(detail=False, methods=["get"])
    def export(self, request: Request) -> HttpResponseBase:
        """Export the matching records as a file that can be imported."""
        kind = request.query_params.get("type") or "json"
        if kind not in FORMATS:
            raise Invalid(f"type must be one of {', '.join(FORMATS)}.")
        return formats.download(records(_filters(request)), kind)


@extend_schema_view(
    list=extend_schema(operation_id="history_imports_list", tags=["history"]),
    retrieve=extend_schema(operation_id="history_imports_retrieve", tags=["history"]),
)
class ImportViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[RecordImport]):
    """Record files imported by the caller's teams."""

    queryset = RecordImport.objects.order_by("-pk")
    serializer_class = ImportSerializer

    def get_parsers(self) -> list[Any]:
        multipart = getattr(self, "action_map", {}).get("post") == "create"
        return [MultiPartParser()] if multipart else super().get_parsers()

    @extend_schema(
        operation_id="history_imports_create",
        request={"multipart/form-data": ImportRequest},
        responses={201: ImportSerializer, 400: Detail, 403: Detail, 413: Detail},
        tags=["history"],
    )
    def create(self, request: Request) -> Response:
        """Import the valid rows of a file of records; the report names what is wrong with the others."""
        values = validated(ImportRequest, request)
        team = team_for(request, Role.ENGINEER)
        made = imports.receive(team, request.user, values["file"], kind=values.get("type", ""))
        return Response(ImportSerializer(made).data, status=status.HTTP_201_CREATED)


def _teams(request: Request) -> list[int]:
    """The caller's teams, or the one that `?team=` names."""
    mine = team_ids(request.user)
    wanted = number_param(request, "team")
    if wanted is None:
        return mine
    if wanted not in mine:
        raise exceptions.NotFound("You are not in this team.")
    return [wanted]


def _filters(request: Request) -> RecordFilters:
    """The filters of the address; raises 400 on what is none."""
    filters = filtered(_teams(request), request._request.GET)
    if not filters.is_valid():
        raise translate_validation(filters.errors)
    return filters
