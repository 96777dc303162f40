"""REST of the compile check: what the compiler says of a plan's baseline and proposals."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Detail
from proposals.compiling import predicted
from proposals.models import Compilation, PlanRecord
from proposals.services import compiling


class CompilationSerializer(serializers.ModelSerializer[Compilation]):
    """proposal: null for the plan's baseline.  check: as `asap compile --json` prints it; null until done."""

    check = serializers.SerializerMethodField()

    class Meta:
        model = Compilation
        fields = ("id", "plan", "proposal", "status", "stage", "note", "created_at", "finished_at", "check")
        read_only_fields = fields

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_check(self, made: Compilation) -> dict[str, Any] | None:
        value = made.value
        config = compiling.config_of(made.plan, made.proposal) if value else None
        return predicted.to_json(config, value) if config and value else None


class PlanCompilationsView(APIView):
    """The compile checks of a plan."""

    def _plan(self, request: Request, pk: int, role: Role) -> PlanRecord:
        return get_for(request.user, PlanRecord.objects.select_related("run"), role, pk=pk)

    def _all(self, plan: PlanRecord) -> Any:
        return CompilationSerializer(compiling.of_plan(plan).values(), many=True).data

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
