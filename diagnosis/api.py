"""REST: diagnoses as `asap diagnose` prints them, and their ops page by page."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.rest import TeamObjects, number_param, validated
from diagnosis import services
from diagnosis.models import DiagnosisRecord, OpRow
from diagnosis.recording import KINDS, PROGRAMS
from experiments.filters import OfRun


class DiagnosisSerializer(serializers.ModelSerializer[DiagnosisRecord]):
    """A diagnosis in a list."""

    experiment = serializers.IntegerField(source="run.experiment_id", read_only=True)

    class Meta:
        model = DiagnosisRecord
        fields = ("id", "experiment", "run", "bottleneck", "confidence", "created_at")
        read_only_fields = fields


class StatedRecordingSerializer(serializers.Serializer[Any]):
    """Hold what the engineer states; empty: as the profile tells."""

    kind = serializers.ChoiceField(choices=list(KINDS), allow_blank=True, default="")
    program = serializers.ChoiceField(choices=list(PROGRAMS), allow_blank=True, default="")


class OpsPageSerializer(serializers.Serializer[Any]):
    """A page of ops with all fields, including HLO text, framework path and source line."""

    count = serializers.IntegerField()
    page = serializers.IntegerField()
    pages = serializers.IntegerField()
    results = serializers.ListField(child=serializers.DictField())


@extend_schema_view(list=extend_schema(tags=["diagnoses"]))
class DiagnosisViewSet(mixins.ListModelMixin, TeamObjects[DiagnosisRecord]):
    queryset = DiagnosisRecord.objects.select_related("run").defer("data").order_by("-run_id")
    serializer_class = DiagnosisSerializer
    filterset_class = OfRun

    def get_queryset(self) -> QuerySet[DiagnosisRecord]:
        records = super().get_queryset()
        return records if self.action == "list" else records.defer(None)

    @extend_schema(
        parameters=[OpenApiParameter("top", OpenApiTypes.INT, description="Number of ops, default 20, at most 500.")],
        responses=OpenApiTypes.OBJECT,
        tags=["diagnoses"],
    )
    def retrieve(self, request: Request, pk: str) -> Response:
        """The object of `asap diagnose` with the ids it is stored under: `kpis`, `bottleneck`, `findings`, `top_ops`,
        `recording` and more.  Shares 0–1; null where not measured."""
        record = self.get_object()
        top = number_param(request, "top")
        data = services.contract(record, 20 if top is None else min(top, services.MAX_PAGE_SIZE))
        ids = {"id": record.pk, "experiment": record.run.experiment_id, "run": record.run_id}
        return Response({**ids, "created_at": record.created_at, **data})

    @extend_schema(
        parameters=[
            *(
                OpenApiParameter(name, description=each.extra["help_text"], enum=[*dict(each.extra.get("choices", ()))])
                for name, each in services.OpFilters.base_filters.items()
            ),
            OpenApiParameter("page", OpenApiTypes.INT),
            OpenApiParameter("size", OpenApiTypes.INT, description="Ops per page, default 50, at most 500."),
        ],
        responses=OpsPageSerializer,
        tags=["diagnoses"],
    )
    @action(detail=True, methods=["get"], url_path="ops", pagination_class=None)
    def ops(self, request: Request, pk: str) -> Response:
        """The ops of a diagnosis, filtered, sorted and paged."""
        page = services.ops(
            self.get_object(),
            request.query_params,
            number_param(request, "page") or 1,
            number_param(request, "size") or services.PAGE_SIZE,
        )
        results = [op_json(row) for row in page]
        count, pages = page.paginator.count, page.paginator.num_pages
        return Response({"count": count, "page": page.number, "pages": pages, "results": results})

    @extend_schema(request=StatedRecordingSerializer, responses={202: OpenApiTypes.OBJECT}, tags=["diagnoses"])
    @action(detail=True, methods=["put"], url_path="recording")
    def recording(self, request: Request, pk: str) -> Response:
        """Correct what was recorded; the profile is diagnosed again, as a new run."""
        run = services.state_recording(
            self.get_object().run, request.user, **validated(StatedRecordingSerializer, request)
        )
        return Response({"run": run.pk}, status=status.HTTP_202_ACCEPTED)


def op_json(row: OpRow) -> dict[str, Any]:
    return {"rank": row.rank, **row.data}
