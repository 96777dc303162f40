"""REST: the performance model, on configurations that are not stored."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.parsers import JSONParser
from accounts.rest import Invalid, validated
from experiments.api.common import ConfigErrors
from experiments.api.serializers import PredictRequest, SearchRequest
from experiments.api.views import refuse_errors
from experiments.services import configuration
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.config_file import parse_mesh_argument
from perfmodel.price import Evidence, answer, baseline_of
from perfmodel.search import search
from perfmodel.space import count_factorisations, default_axes

MAX_CONFIGS = 100
#: Meshes that a search may price while somebody waits: about a second.
MAX_CANDIDATES = 200_000
_ONE_OR_MANY = {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}


def read_config(data: Any) -> ExperimentConfig:
    """A configuration from the request; raises 400 with every error by field."""
    if not isinstance(data, dict):
        raise Invalid("config must be a configuration (a JSON object).")
    checked = configuration.check(data)
    refuse_errors(checked)
    assert checked.config is not None
    return checked.config


class PredictView(APIView):
    parser_classes = [JSONParser]

    @extend_schema(
        operation_id="predict",
        request=PredictRequest,
        responses={200: _ONE_OR_MANY, 400: ConfigErrors},
        tags=["performance model"],
    )
    def post(self, request: Request) -> Response:
        """The output of `asap predict --json`: step time, breakdown, memory, MFU, violations; a list returns a list."""
        given = validated(PredictRequest, request)
        data, mesh = given["config"], given.get("mesh")
        baseline = self._baseline(given.get("baseline"))
        if isinstance(data, list):
            if len(data) > MAX_CONFIGS:
                raise Invalid(f"At most {MAX_CONFIGS} configurations at once.")
            return Response([self._predict(item, mesh, baseline) for item in data])
        return Response(self._predict(data, mesh, baseline))

    def _baseline(self, data: Any) -> Evidence | None:
        if data is None:
            return None
        try:
            return baseline_of(read_config(data))
        except ConfigError as error:
            raise Invalid(f"baseline: {error}") from error

    def _predict(self, data: Any, mesh: str | None, baseline: Evidence | None) -> dict[str, Any]:
        config = read_config(data)
        try:
            return answer(config, parse_mesh_argument(mesh, config.mesh.axis_roles) if mesh else None, baseline)
        except ConfigError as error:
            raise Invalid(str(error)) from error


class SearchView(APIView):
    parser_classes = [JSONParser]

    @extend_schema(
        operation_id="search",
        request=SearchRequest,
        responses={200: OpenApiTypes.OBJECT, 400: ConfigErrors},
        tags=["performance model"],
    )
    def post(self, request: Request) -> Response:
        """The output of `asap search --json`: the fastest legal candidates, and rejected ones with their rule."""
        given = validated(SearchRequest, request)
        config = read_config(given["config"])
        axes = default_axes(config)
        count = count_factorisations(config.hardware.chips_per_slice, len(axes))
        if count > MAX_CANDIDATES:
            raise Invalid(
                f"{len(axes)} axes over {config.hardware.chips_per_slice:,} chips make {count:,} meshes, more than the "
                f"{MAX_CANDIDATES:,} that a request may evaluate: name fewer axes in mesh.ici, or run asap search."
            )
        try:
            result = search(config, given["top"])
        except ConfigError as error:
            raise Invalid(str(error)) from error
        return Response({"name": config.name, **result.to_json()})
