"""REST of tuning campaigns: begin one, follow it, pause, resume, cancel, try a trial again."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Detail, Invalid, TeamObjects, validated
from campaigns import presentation
from campaigns.models import Campaign, Trial
from campaigns.services import campaigns as services
from experiments.api.common import ConfigErrors
from experiments.models import Experiment


class CampaignSerializer(serializers.ModelSerializer[Campaign]):
    """A campaign.  analysis: of the latest plan, candidates held back and the outcome of the language
    model's request.  tokens, cost_usd: language-model usage so far."""

    config = serializers.DictField(read_only=True)
    constraints = serializers.DictField(read_only=True)
    held_back = serializers.DictField(read_only=True, help_text="Candidates rejected, by the first rule violated.")
    tool = serializers.CharField(read_only=True)  # empty where nothing is launched
    analysis = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Campaign
        fields = (
            "id", "experiment", "status", "reason", "backend", "config", "constraints", "parallel", "to_budget",
            "most_trials", "most_s", "most_dollars", "dollars_per_chip_hour", "expert_step_time_s", "tool", "steps",
            "considered", "held_back", "analysis", "use_language_model", "most_tokens", "tokens", "cost_usd",
            "created_by", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_analysis(self, made: Campaign) -> dict[str, Any]:
        return {key: value for key, value in (made.analysis or {}).items() if key in ("held_back", "advice")}


class TrialSerializer(serializers.ModelSerializer[Trial]):
    """A trial.  Number 0 is the configuration before the campaign.  Seconds, bytes, shares; null if not measured.

    launch: id of its latest run on the team's cluster.
    """

    mesh = serializers.DictField(read_only=True)
    training = serializers.DictField(read_only=True)
    why = serializers.SerializerMethodField()
    failure = serializers.DictField(read_only=True, allow_null=True)

    class Meta:
        model = Trial
        fields = (
            "number", "status", "mesh", "training", "why", "chosen_by", "predicted_step_time_s", "predicted_low_s",
            "predicted_high_s", "gain", "faster", "runs_probability", "step_time_s", "step_times_s", "peak_bytes",
            "mfu", "duty_cycle", "modelled", "failure", "runs", "launch", "created_at", "started_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_why(self, trial: Trial) -> str:
        return str(presentation.stored_sentence(trial.why))


class BeginSerializer(serializers.ModelSerializer[Campaign]):
    experiment = serializers.IntegerField(min_value=1)
    constraints = serializers.DictField(required=False, default=dict, help_text="As in a plan request.")

    class Meta:
        model = Campaign
        fields = (
            "experiment", "backend", "most_trials", "parallel", "to_budget", "most_s", "most_dollars",
            "dollars_per_chip_hour", "expert_step_time_s", "constraints", "use_language_model", "most_tokens", "tool",
            "steps",
        )  # fmt: skip


class ChangeSerializer(serializers.Serializer[Any]):
    change = serializers.ChoiceField(choices=list(services.CHANGES))


class RetrySerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField(min_value=0)


@extend_schema_view(list=extend_schema(tags=["campaigns"]), retrieve=extend_schema(tags=["campaigns"]))
class CampaignViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Campaign]):
    """Tuning campaigns, newest first."""

    queryset = Campaign.objects.select_related("created_by").order_by("-pk")
    serializer_class = CampaignSerializer
    filterset_fields = ("experiment", "status")

    @extend_schema(
        request=BeginSerializer,
        responses={201: CampaignSerializer, 400: ConfigErrors, 403: Detail},
        tags=["campaigns"],
    )
    def create(self, request: Request) -> Response:
        """Start a campaign; requires an engineer.  Poll until `status` is no longer running."""
        values = validated(BeginSerializer, request)
        experiment = get_for(request.user, Experiment.objects.all(), Role.ENGINEER, pk=values.pop("experiment"))
        try:
            draft = Campaign(**values, server=request.build_absolute_uri("/"))
            made = services.begin(experiment, request.user, draft)
        except services.CampaignError as error:
            raise Invalid(str(error), {error.field: str(error)} if error.field else None) from error
        return Response(CampaignSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        request=ChangeSerializer, responses={200: CampaignSerializer, 403: Detail, 409: Detail}, tags=["campaigns"]
    )
    @action(detail=True, methods=["post"])
    def change(self, request: Request, pk: str) -> Response:
        """Pause, resume or cancel a campaign; 409 if its status does not allow it."""
        made = self.get_object()
        services.change(made, request.user, validated(ChangeSerializer, request)["change"])
        made.refresh_from_db()
        return Response(CampaignSerializer(made).data)

    @extend_schema(responses=TrialSerializer(many=True), tags=["campaigns"])
    @action(detail=True)
    def trials(self, request: Request, pk: str) -> Response:
        """The campaign's trials, in the order planned."""
        trials: Any = self.get_object().trials.order_by("number")
        page: Any = self.paginate_queryset(trials)
        return self.get_paginated_response(TrialSerializer(page, many=True).data)

    @extend_schema(
        request=RetrySerializer, responses={200: TrialSerializer, 403: Detail, 409: Detail}, tags=["campaigns"]
    )
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Retry a failed trial; a campaign that has ended resumes."""
        made = self.get_object()
        number = validated(RetrySerializer, request)["number"]
        trial = get_object_or_404(made.trials.select_related("campaign"), number=number)
        services.retry(trial, request.user)
        trial.refresh_from_db()
        return Response(TrialSerializer(trial).data)
