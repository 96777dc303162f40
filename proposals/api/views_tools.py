"""REST of the tools that language models call: their JSON schemas, and one of them called for an experiment."""

from __future__ import annotations

import json
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
from agent.bounded import visible
from agent.messages import ToolCall
from agent.tools import by_name, call_tool
from experiments.api.common import ConfigErrors
from experiments.models import Experiment
from proposals.agents.retrieval import Unavailable
from proposals.agents.toolbox import described, toolbox
from proposals.agents.workbench import Workbench
from proposals.services import stored


class ToolSerializer(serializers.Serializer[Any]):
    """A tool for an experiment.  schema: JSON schema of its arguments."""

    name = serializers.CharField()
    description = serializers.CharField()
    schema = serializers.DictField()


class CallSerializer(serializers.Serializer[Any]):
    """A tool to call.  arguments: as defined by its schema."""

    experiment = serializers.IntegerField(min_value=1)
    arguments = serializers.DictField(default=dict)


def read_call(request: Request) -> tuple[Workbench, dict[str, Any]]:
    """Return the workbench of the experiment that a call is for, if the caller may read it, and its arguments.

    Raises Conflict where nothing was diagnosed yet.
    """
    given = validated(CallSerializer, request)
    experiment = get_for(request.user, Experiment.objects.all(), Role.VIEWER, pk=given["experiment"])
    try:
        return stored.workbench(experiment, request.user), given["arguments"]
    except Unavailable as error:
        raise Conflict(str(error)) from error


class ToolResultSerializer(serializers.Serializer[Any]):
    """result: quantities in SI, by the units in their names.  left_out: what was left out because it was too long."""

    result = serializers.DictField()
    left_out = serializers.ListField(child=serializers.CharField())


class ToolsView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(responses=ToolSerializer(many=True), tags=["dialogue"], operation_id="tools_list")
    def get(self, request: Request) -> Response:
        """All tools, as language models are offered them."""
        return Response(described())


class ToolView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(
        request=CallSerializer,
        responses={200: ToolResultSerializer, 400: ConfigErrors, 404: Detail, 409: Detail},
        tags=["dialogue"],
    )
    def post(self, request: Request, name: str) -> Response:
        """Call a tool for an experiment that you can read.  Stores and changes nothing."""
        if name not in {each["name"] for each in described()}:
            raise NotFound(f"There is no tool {name[:40]!r}; /api/tools/ lists them.")
        bench, given = read_call(request)
        called = call_tool(by_name(toolbox(bench)), ToolCall("rest", name, json.dumps(given)), "r1")
        if called.error is not None:
            raise serializers.ValidationError({"arguments": called.error})
        return Response({"result": visible(called.result), "left_out": list(called.truncated)})
