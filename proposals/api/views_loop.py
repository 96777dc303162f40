"""REST of the measured loop: what was measured of approved proposals, and proposals again within constraints."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.permissions import get_for, team_ids
from accounts.rest import Detail, Invalid, TeamObjects, validated
from experiments.api.common import ConfigErrors
from experiments.filters import OfRun
from experiments.models import Experiment
from history.record import FAILURES
from proposals import measured
from proposals.filters import MeasurementFilters
from proposals.models import Measurement, PlanRequest, Proposal
from proposals.services import failing, measuring, regenerating, unmeasured


class MeasurementSerializer(serializers.ModelSerializer[Measurement]):
    """A result: the prediction at approval and the measurement of its run.  Seconds; speed-ups per token.

    analysis: the cause of a failed run, as `asap failure --json` prints it.
    """

    predicted_speedup = serializers.FloatField(read_only=True, allow_null=True)
    error = serializers.FloatField(read_only=True, allow_null=True, help_text="Measured ÷ predicted speed-up − 1.")
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)
    caveats = serializers.ListField(child=serializers.CharField(), read_only=True)
    analysis = serializers.SerializerMethodField()

    class Meta:
        model = Measurement
        fields = (
            "id", "proposal", "experiment", "run", "status", "outcome", "failure", "comment", "analysis", "reason",
            "predicted_log_gain", "predicted_sigma", "predicted_confidence", "predicted_speedup", "before_step_time_s",
            "after_step_time_s", "speedup", "error", "within_range", "caveats", "record", "created_by", "created_at",
            "measured_at",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_analysis(self, made: Measurement) -> dict[str, Any] | None:
        return made.analysis or None


class MeasurementRequest(serializers.Serializer[Any]):
    """Give either the experiment that ran the proposal, or a failure and/or its log."""

    proposal = serializers.IntegerField(min_value=1)
    experiment = serializers.IntegerField(min_value=1, required=False)
    failure = serializers.ChoiceField(choices=[(name, name) for name in FAILURES], required=False)
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=measuring.MAX_COMMENT)
    log = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="The run's log, as text."
    )
    log_file = serializers.FileField(required=False, allow_empty_file=True, help_text="The run's log, as a file.")


class SummarySerializer(serializers.Serializer[Any]):
    results = serializers.IntegerField(help_text="Measured and failed runs.")
    measured = serializers.IntegerField()
    waiting = serializers.IntegerField(help_text="Approved proposals without a result.")
    median_error = serializers.FloatField(allow_null=True, help_text="Median of |measured ÷ predicted speed-up − 1|.")
    inside = serializers.IntegerField(help_text="Results within the predicted 80 % interval.")
    ranged = serializers.IntegerField(help_text="Results whose prediction had an 80 % interval.")
    brier = serializers.FloatField(allow_null=True, help_text="Brier score of the stated confidence; 0 is perfect.")


@extend_schema_view(list=extend_schema(tags=["measurements"]), retrieve=extend_schema(tags=["measurements"]))
class MeasurementViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, TeamObjects[Measurement]
):
    """Measured outcomes of approved proposals, newest first."""

    queryset = Measurement.objects.select_related("created_by").order_by("-pk")
    serializer_class = MeasurementSerializer
    filterset_class = MeasurementFilters

    @extend_schema(
        request=MeasurementRequest,
        responses={201: MeasurementSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["measurements"],
    )
    def create(self, request: Request) -> Response:
        """Link an experiment as the run of an approved proposal, or report that it failed; requires an engineer.

        Without `failure`, the cause is determined from the log; `analysis` holds what was found.

        `status` is `linked` until the experiment's analysis is ready; the measurement then follows automatically.
        409 with the reason if the runs are not comparable or the proposal already has a result.
        """
        values = validated(MeasurementRequest, request)
        if ("experiment" in values) == bool({"failure", "log", "log_file"} & set(values)):
            raise Invalid("Give either experiment (the run of the proposal), or failure or log (why it failed).")
        proposals = Proposal.objects.select_related("experiment", "plan__run__profile")
        proposal = get_for(request.user, proposals, Role.ENGINEER, pk=values["proposal"])
        if "experiment" not in values:
            files = [values["log_file"]] if "log_file" in values else []
            cause = failing.analyse(proposal, files, values.get("log", ""))
            made = measuring.report_failure(proposal, request.user, values.get("failure", ""), values["comment"], cause)
        else:
            experiment = get_for(request.user, Experiment.objects.all(), Role.ENGINEER, pk=values["experiment"])
            made = measuring.link(proposal, experiment, request.user)
        return Response(MeasurementSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None, 403: Detail, 409: Detail}, tags=["measurements"])
    def destroy(self, request: Request, pk: str) -> Response:
        """Remove a link that has no result yet."""
        made = self.get_object()
        measuring.unlink(made.proposal, request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=SummarySerializer, tags=["measurements"])
    @action(detail=False, pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Prediction accuracy over all results of your teams."""
        teams = team_ids(request.user)
        done = measured.results(measuring.results(teams))
        value = {
            "results": done.total, "measured": done.measured, "waiting": unmeasured.waiting(teams).count(),
            "median_error": done.median_error, "inside": done.inside, "ranged": done.ranged, "brier": done.brier,
        }  # fmt: skip
        return Response(SummarySerializer(value).data)


class PlanRequestSerializer(serializers.ModelSerializer[PlanRequest]):
    experiment = serializers.IntegerField(source="run.experiment_id", read_only=True)
    constraints = serializers.DictField(read_only=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = PlanRequest
        fields = ("id", "experiment", "run", "constraints", "status", "reason", "plan", "created_by", "created_at")
        read_only_fields = fields


class AskSerializer(serializers.Serializer[Any]):
    experiment = serializers.IntegerField(min_value=1)
    constraints = serializers.DictField(
        required=False,
        default=dict,
        help_text="keep_batch, keep_remat, keep_weight_sharding, keep_micro_batches, no_flags: true; keep_axes: names "
        "or roles; fixed, at_least, at_most: size by name or role; memory_margin: share to keep "
        "free; excluded: meshes.",
    )


@extend_schema_view(list=extend_schema(tags=["proposals"]), retrieve=extend_schema(tags=["proposals"]))
class PlanRequestViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[PlanRequest]):
    """Requests for new plans under constraints, newest first."""

    queryset = PlanRequest.objects.select_related("run", "created_by").order_by("-pk")
    serializer_class = PlanRequestSerializer
    filterset_class = OfRun

    @extend_schema(
        request=AskSerializer,
        responses={202: PlanRequestSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["proposals"],
    )
    def create(self, request: Request) -> Response:
        """Request new proposals for the experiment's latest run.  Poll until `status` is done or failed.

        409 with the reason if the run is not ready, a constraint is invalid, or another request is open.
        """
        values = validated(AskSerializer, request)
        experiment = get_for(request.user, Experiment.objects.all(), Role.ENGINEER, pk=values["experiment"])
        made = regenerating.request(experiment, request.user, values["constraints"])
        return Response(PlanRequestSerializer(made).data, status=status.HTTP_202_ACCEPTED)
