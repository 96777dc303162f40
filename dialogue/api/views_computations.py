"""REST of the computations: what can be computed, with JSON schemas, and one of them computed for an experiment."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.rest import Detail
from agent.tools import ToolError
from dialogue import computations
from dialogue.computations import Computation, registry
from dialogue.computations.matching import ASKED
from experiments.api.common import ConfigErrors
from proposals.api.views_tools import CallSerializer, read_call


class ComputationSerializer(serializers.Serializer[Any]):
    """A computation available for an experiment.  asked: how people ask for it; about: what it is about; schema:
    JSON schema of its arguments."""

    key = serializers.CharField()
    title = serializers.CharField()
    asked = serializers.ListField(child=serializers.CharField())
    about = serializers.CharField()
    schema = serializers.DictField()


class ComputedSerializer(serializers.Serializer[Any]):
    """arguments: as computed with.  text: Markdown.  values: the numbers in it, with unit, origin and subject.  next:
    further computations with their arguments."""

    title = serializers.CharField()
    arguments = serializers.DictField()
    text = serializers.CharField()
    values = serializers.ListField(child=serializers.DictField())
    next = serializers.ListField(child=serializers.DictField())


def _described(of: Computation) -> dict[str, Any]:
    return {
        "key": of.key, "title": of.title, "asked": ASKED[of.key], "about": of.about,
        "schema": of.arguments.model_json_schema(),
    }  # fmt: skip


class ComputationsView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(responses=ComputationSerializer(many=True), tags=["dialogue"], operation_id="computations_list")
    def get(self, request: Request) -> Response:
        """All computations, as in the palette."""
        return Response([_described(item) for item in registry().values()])


class ComputationView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(responses={200: ComputationSerializer, 404: Detail}, tags=["dialogue"])
    def get(self, request: Request, key: str) -> Response:
        """One computation."""
        return Response(_described(_computation_or_404(key)))

    @extend_schema(
        request=CallSerializer,
        responses={200: ComputedSerializer, 400: ConfigErrors, 404: Detail, 409: Detail},
        tags=["dialogue"],
    )
    def post(self, request: Request, key: str) -> Response:
        """Compute it for an experiment that you can read.  Stores and changes nothing."""
        of = _computation_or_404(key)
        bench, given = read_call(request)
        try:
            answered = computations.run(bench, of.key, given)
        except ToolError as error:
            raise serializers.ValidationError({"arguments": str(error)}) from error
        return Response(
            {
                "title": answered.title, "arguments": answered.arguments, "text": answered.rendered.plain,
                "values": answered.values, "next": answered.further(),
            }
        )  # fmt: skip


def _computation_or_404(key: str) -> Computation:
    of = registry().get(key)
    if of is None:
        raise NotFound(f"There is no computation {key[:40]!r}; /api/computations/ lists them.")
    return of
