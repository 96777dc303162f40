from __future__ import annotations

import gzip
import json
from typing import Any

from django.db.models import QuerySet
from django.http import FileResponse, HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import exceptions, mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.parsers import JSONParser
from accounts.rest import Conflict, Detail, Invalid, TeamObjects, number_param, team_for, validated
from experiments.api.common import ConfigErrors, Contradicted
from experiments.api.serializers import (
    ConfigurationSerializer,
    EventSerializer,
    ExperimentDetailSerializer,
    ExperimentSerializer,
    ProfileSerializer,
    RunDetailSerializer,
    RunSerializer,
    StepTimeSerializer,
    UploadSerializer,
)
from experiments.filters import ExperimentFilters
from experiments.models import Experiment, Profile, Run
from experiments.services import configuration, events, profiles, runs, starting, storage, uploads


@extend_schema_view(
    list=extend_schema(tags=["experiments"]),
    retrieve=extend_schema(responses=ExperimentDetailSerializer, tags=["experiments"]),
    destroy=extend_schema(
        description="Delete the experiment with its files, diagnosis, proposals, launches and campaigns. Requires an "
        "administrator if a proposal has been approved or rejected. While a launch, or a campaign on the cluster, has "
        "not ended, the response is 409 and says what to cancel first.",
        responses={204: None, 403: Detail, 409: Detail},
        tags=["experiments"],
    ),
)
class ExperimentViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, TeamObjects[Experiment]
):
    queryset = Experiment.objects.select_related("created_by")
    serializer_class = ExperimentSerializer
    filterset_class = ExperimentFilters

    def get_queryset(self) -> QuerySet[Experiment]:
        rows = super().get_queryset()
        return rows.prefetch_related("profiles__files", "runs") if self.action == "retrieve" else rows

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Experiment]]:
        return ExperimentDetailSerializer if self.action == "retrieve" else ExperimentSerializer

    @extend_schema(
        request={"multipart/form-data": UploadSerializer},
        responses={201: ExperimentDetailSerializer, 400: ConfigErrors, 413: Detail, 429: Detail, 507: Detail},
        tags=["experiments"],
    )
    def create(self, request: Request) -> Response:
        """Upload a profile, optionally with its configuration, and start the analysis.

        If the profile contradicts the configuration, the run stops at `configuring`: PUT the corrected configuration,
        or the same one with `accept`.  Fields listed in `accept` of the upload are kept without asking.
        """
        team = team_for(request, Role.ENGINEER)
        config_file = request.FILES.get("config")
        text = config_file.read().decode("utf-8", "replace") if config_file else request.POST.get("config", "")
        if text.strip():
            refuse_errors(configuration.read_text(text))
        experiment = uploads.receive(
            team,
            request.user,
            request.FILES.getlist("files"),
            text,
            request.POST.get("name", ""),
            accept=accepted(request.POST.getlist("accept")),
        )
        data = ExperimentDetailSerializer(experiment, context=self.get_serializer_context()).data
        return Response(data, status=status.HTTP_201_CREATED)

    @extend_schema(
        request=StepTimeSerializer,
        responses={201: ExperimentDetailSerializer, 400: ConfigErrors},
        tags=["experiments"],
    )
    @action(detail=False, methods=["post"], url_path="step-time", url_name="step-time")
    def step_time(self, request: Request) -> Response:
        """Start a run from a measured step time, without a profile: three proposals calibrated to that number."""
        team = team_for(request, Role.ENGINEER)
        given = validated(StepTimeSerializer, request)
        data = given["config"]
        if not isinstance(data, dict):
            raise Invalid("config must be a configuration (a JSON object).")
        name = given.get("name", "")
        experiment, checked = starting.from_step_time(team, request.user, data, name)
        refuse_errors(checked)
        data = ExperimentDetailSerializer(experiment, context=self.get_serializer_context()).data
        return Response(data, status=status.HTTP_201_CREATED)

    def get_parsers(self) -> list[Any]:
        multipart = getattr(self, "action_map", {}).get("post") == "create"
        return [MultiPartParser()] if multipart else [JSONParser()]

    def perform_destroy(self, instance: Experiment) -> None:
        uploads.delete(instance, self.request.user)

    @extend_schema(
        methods=["GET"],
        responses=ConfigurationSerializer,
        description="The configuration; if none is saved yet, prefilled from the profile.",
        tags=["experiments"],
    )
    @extend_schema(
        methods=["PUT"],
        request=OpenApiTypes.OBJECT,
        responses={200: ConfigurationSerializer, 400: ConfigErrors, 409: Contradicted},
        description="Validate and save the configuration, and start or restart the analysis with it. If the profile "
        "contradicts it, nothing is saved and the response is 409 with `contradictions`: correct the fields, or list "
        "them in `accept`, beside the configuration's own keys, to keep them; kept fields become caveats of the "
        "diagnosis.",
        tags=["experiments"],
    )
    @action(detail=True, methods=["get", "put"], url_path="configuration")
    def configuration(self, request: Request, pk: str) -> Response:
        experiment = self.get_object()
        if request.method == "PUT":
            given = {key: value for key, value in request.data.items() if key != "accept"}
            checked = configuration.save(experiment, request.user, given, accepted(request.data.get("accept")))
            refuse_errors(checked)
        elif experiment.config is not None:
            checked = configuration.against(experiment, configuration.check(experiment.config))
        else:
            profile = experiment.profiles.last()
            data = experiment.config_draft or (configuration.prefill(profile).data if profile else {})
            return Response({"config": data, "saved": False, "warnings": [], "contradictions": []})
        against = [item.to_json() for item in checked.against]
        warnings = list(checked.warnings)
        return Response({"config": checked.data, "saved": True, "warnings": warnings, "contradictions": against})

    @extend_schema(
        parameters=[
            OpenApiParameter("after", OpenApiTypes.INT, description="Only events with a larger id."),
            OpenApiParameter("limit", OpenApiTypes.INT, description="Number of events; default and maximum 1000."),
        ],
        responses=EventSerializer(many=True),
        tags=["events"],
    )
    @action(detail=True, methods=["get"], url_path="events", pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        """The experiment's events, oldest first: its complete trace."""
        experiment = self.get_object()
        after, limit = number_param(request, "after") or 0, number_param(request, "limit") or 1000
        later = events.after(experiment, after)[: min(limit, 1000)]
        return Response([events.to_json(event) for event in later])

    @extend_schema(
        responses={(200, "application/jsonl"): OpenApiTypes.STR},
        description="All events as JSON Lines: one event per line, oldest first.",
        tags=["events"],
    )
    @action(detail=True, methods=["get"], url_path="events.jsonl", url_name="events-jsonl")
    def events_jsonl(self, request: Request, pk: str) -> HttpResponseBase:
        experiment = self.get_object()

        lines = [json.dumps(events.to_json(event)) + "\n" for event in events.after(experiment)]
        response = HttpResponse("".join(lines), content_type="application/jsonl")
        response.headers["Content-Disposition"] = f'attachment; filename="experiment-{experiment.pk}.jsonl"'
        return response


def accepted(value: Any) -> list[str]:
    """The fields named in `accept`: a list, or text with commas.  Raises 400 on anything else."""
    if value is None or value == "":
        return []
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise Invalid("accept must be a list of fields, such as hardware.chip.")
    return [name.strip() for item in items for name in item.split(",") if name.strip()]


class Undecided(Conflict):
    """409: the profile contradicts the configuration, and nobody decided."""

    def __init__(self, checked: configuration.Checked) -> None:
        fields = ", ".join(item.field for item in checked.undecided)
        first = checked.undecided[0]
        super().__init__(f"{first.sentence} Correct it, or keep it with accept: {fields}.")
        detail: Any = {"detail": str(self.detail), "contradictions": [item.to_json() for item in checked.undecided]}
        self.detail = detail


def refuse_errors(checked: configuration.Checked) -> None:
    """Raises 400 with the first error as a sentence, and all of them by field; 409 with what the profile contradicts
    and nobody decided on."""
    if checked.ok:
        return
    if checked.undecided:
        raise Undecided(checked)
    field, message = next(iter(checked.errors.items()))
    detail = f"{field}: {message}" if field else message
    raise Invalid(detail, checked.errors)


@extend_schema_view(list=extend_schema(tags=["profiles"]), retrieve=extend_schema(tags=["profiles"]))
class ProfileViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Profile]):
    queryset = Profile.objects.prefetch_related("files").order_by("-pk")
    serializer_class = ProfileSerializer
    filterset_fields = ("experiment",)

    @extend_schema(
        responses={(200, "application/json"): OpenApiTypes.OBJECT, 404: Detail},
        description="Everything read from the profile: steps, KPIs, cores, every op.",
        tags=["profiles"],
    )
    @action(detail=True, methods=["get"], url_path="data")
    def data(self, request: Request, pk: str) -> HttpResponseBase:
        profile = self.get_object()
        path = storage.absolute(profile.data) if profile.data else None
        if path is None or not path.exists():
            raise exceptions.NotFound(str(profiles.NotIngested("This profile has not been read yet.")))
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return HttpResponse(gzip.decompress(path.read_bytes()), content_type="application/json")
        response = FileResponse(path.open("rb"), content_type="application/json")
        response.headers["Content-Encoding"] = "gzip"
        return response


@extend_schema_view(
    list=extend_schema(tags=["runs"]), retrieve=extend_schema(responses=RunDetailSerializer, tags=["runs"])
)
class RunViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Run]):
    queryset = Run.objects.order_by("-pk")
    serializer_class = RunSerializer
    filterset_fields = ("experiment",)

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Run]]:
        return RunDetailSerializer if self.action == "retrieve" else RunSerializer

    @extend_schema(request=None, responses={201: RunSerializer, 409: Detail}, tags=["runs"])
    @action(detail=True, methods=["post"], url_path="retry")
    def retry(self, request: Request, pk: str) -> Response:
        """Retry a failed run, as a new run that starts at the failed stage."""
        run = self.get_object()
        again = runs.retry(run, request.user)
        return Response(RunSerializer(again).data, status=status.HTTP_201_CREATED)
