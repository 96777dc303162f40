"""REST of the capabilities: what can be computed, with JSON schemas, and one of them computed for an experiment."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Conflict, Detail, validated
from agent.tools import ToolError
from experiments.api.common import ConfigErrors
from experiments.models import Experiment
from perfmodel.config import ConfigError
from proposals.agents.capabilities import AREAS, Capability, arguments, registry
from proposals.agents.capabilities.as_tools import called
from proposals.agents.retrieval import Unavailable
from proposals.services import stored


class CapabilitySerializer(serializers.Serializer[Any]):
    """A computation available for an experiment.  schema: JSON schema of its arguments."""

    key = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    area = serializers.CharField()
    examples = serializers.ListField(child=serializers.CharField())
    schema = serializers.DictField()


class ComputeSerializer(serializers.Serializer[Any]):
    experiment = serializers.IntegerField(min_value=1)
    arguments = serializers.DictField(default=dict, help_text="As defined by the capability's schema.")


class ComputedSerializer(serializers.Serializer[Any]):
    """answers: the question answered.  text: Markdown.  results: tool results, in order."""

    answers = serializers.CharField()
    text = serializers.CharField()
    results = serializers.ListField(child=serializers.DictField())
    asks_back = serializers.ListField(child=serializers.DictField(), required=False)
    would_hold = serializers.ListField(child=serializers.CharField(), required=False)


def _described(of: Capability) -> dict[str, Any]:
    return {
        "key": of.key, "title": of.title, "description": of.description, "area": AREAS[of.area],
        "examples": list(of.examples), "schema": of.arguments.model_json_schema(),
    }  # fmt: skip


class CapabilitiesView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(responses=CapabilitySerializer(many=True), tags=["dialogue"], operation_id="capabilities_list")
    def get(self, request: Request) -> Response:
        """All capabilities, as in the dialogue's palette."""
        return Response([_described(item) for item in registry().values()])


class CapabilityView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(responses={200: CapabilitySerializer, 404: Detail}, tags=["dialogue"])
    def get(self, request: Request, key: str) -> Response:
        """One capability."""
        return Response(_described(_capability_or_404(key)))

    @extend_schema(
        request=ComputeSerializer,
        responses={200: ComputedSerializer, 400: ConfigErrors, 404: Detail, 409: Detail},
        tags=["dialogue"],
    )
    def post(self, request: Request, key: str) -> Response:
        """Run the capability on an experiment that you can read.  Stores and changes nothing."""
        of = _capability_or_404(key)
        given = validated(ComputeSerializer, request)
        experiment = get_for(request.user, Experiment.objects.all(), Role.VIEWER, pk=given["experiment"])
        try:
            values = arguments(of, given["arguments"])
            return Response(called(stored.workbench(experiment, request.user), of, values))
        except (ToolError, ConfigError) as error:
            raise serializers.ValidationError({"arguments": str(error)}) from error
        except Unavailable as error:
            raise Conflict(str(error)) from error


def _capability_or_404(key: str) -> Capability:
    of = registry().get(key)
    if of is None:
        raise NotFound(f"There is no capability {key[:40]!r}; /api/capabilities/ lists them.")
    return of
