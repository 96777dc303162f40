"""REST of the compile check: what the compiler says of a plan's baseline and proposals."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Detail
from proposals.compiling import predicted
from proposals.compiling.result import OUTCOMES
from proposals.models import Compilation, PlanRecord
from proposals.services import compiling


class AxisSerializer(serializers.Serializer[Any]):
    """Bytes sent per chip and step over a group of mesh axes."""

    axes = serializers.ListField(child=serializers.CharField())
    kinds = serializers.ListField(child=serializers.CharField())
    sent_bytes = serializers.FloatField(allow_null=True)
    predicted_sent_bytes = serializers.FloatField(allow_null=True)


class CollectiveSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    axes = serializers.ListField(child=serializers.CharField())
    participants = serializers.IntegerField()
    payload_bytes = serializers.FloatField()
    times = serializers.IntegerField(help_text="Per step.")
    sent_bytes = serializers.FloatField(help_text="Per chip and step.")
    source = serializers.CharField(help_text="Framework path of the op.")


class CheckSerializer(serializers.Serializer[Any]):
    outcome = serializers.ChoiceField(choices=[(name, name) for name in OUTCOMES])
    message = serializers.CharField()
    peak_bytes = serializers.FloatField(allow_null=True)
    argument_bytes = serializers.FloatField(allow_null=True)
    needed_bytes = serializers.FloatField(allow_null=True)
    capacity_bytes = serializers.FloatField(allow_null=True)
    predicted_bytes = serializers.FloatField(allow_null=True, help_text="Predicted by the performance model.")
    axes = AxisSerializer(many=True)
    collectives = CollectiveSerializer(many=True, help_text="The largest collectives.")
    effort = serializers.CharField()
    compile_s = serializers.FloatField(allow_null=True)
    versions = serializers.DictField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField())


class CompilationSerializer(serializers.Serializer[Any]):
    """proposal: null for the plan's baseline.  check: null until done."""

    id = serializers.IntegerField()
    plan = serializers.IntegerField()
    proposal = serializers.IntegerField(allow_null=True)
    status = serializers.ChoiceField(choices=Compilation.Status.choices)
    stage = serializers.CharField()
    note = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    check = CheckSerializer(allow_null=True)


def _json(made: Compilation, plan: PlanRecord) -> dict[str, Any]:
    value = made.value
    config = compiling.config_of(plan, made.proposal) if value else None
    return {
        "id": made.pk,
        "plan": made.plan_id,
        "proposal": made.proposal_id,
        "status": made.status,
        "stage": made.stage,
        "note": made.note,
        "created_at": made.created_at,
        "finished_at": made.finished_at,
        "check": predicted.to_json(config, value) if config and value else None,
    }


class PlanCompilationsView(APIView):
    """The compile checks of a plan."""

    def _plan(self, request: Request, pk: int, role: Role) -> PlanRecord:
        return get_for(request.user, PlanRecord.objects.select_related("run"), role, pk=pk)

    def _all(self, plan: PlanRecord) -> list[dict[str, Any]]:
        return [_json(made, plan) for made in compiling.of_plan(plan).values()]

    @extend_schema(responses=CompilationSerializer(many=True), tags=["proposals"])
    def get(self, request: Request, pk: int) -> Response:
        """The newest check of the baseline and of each proposal."""
        return Response(self._all(self._plan(request, pk, Role.VIEWER)))

    @extend_schema(
        request=None, responses={202: CompilationSerializer(many=True), 403: Detail, 409: Detail}, tags=["proposals"]
    )
    def post(self, request: Request, pk: int) -> Response:
        """Compile the baseline and the proposals in a worker.  Poll until no `status` is queued or working.

        409 with the reason if the compiler is not installed or the configuration is incomplete.
        """
        plan = self._plan(request, pk, Role.ENGINEER)
        compiling.request(plan, request.user)
        return Response(self._all(plan), status=status.HTTP_202_ACCEPTED)

    @extend_schema(responses={204: None, 403: Detail}, tags=["proposals"])
    def delete(self, request: Request, pk: int) -> Response:
        """Cancel queued and running compilations."""
        compiling.cancel(self._plan(request, pk, Role.ENGINEER), request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)
