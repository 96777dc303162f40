from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.permissions import get_for, team_ids
from accounts.rest import Detail, Paging, TeamObjects, TeamRole, validated
from experiments.api.common import ConfigErrors
from experiments.filters import OfRun
from formatting.text import clean_json
from proposals.candidate import Candidate
from proposals.filters import OfProposal
from proposals.launch import KINDS
from proposals.models import Decision, PlanRecord, Proposal, Review
from proposals.services import custom_mesh, launching, plans, reviews


class ReviewSerializer(serializers.ModelSerializer[Review]):
    author = serializers.CharField(source="author.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Review
        fields = ("id", "proposal", "decision", "comment", "author", "created_at")
        read_only_fields = fields


class ReviewRequest(serializers.Serializer[Any]):
    proposal = serializers.IntegerField(min_value=1)
    decision = serializers.ChoiceField(choices=Decision.choices)
    comment = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=reviews.MAX_COMMENT, trim_whitespace=True
    )


class ProposalSerializer(serializers.ModelSerializer[Proposal]):
    """A proposal in a list, with its review.  Times in seconds, confidence 0–1."""

    review = serializers.SerializerMethodField()

    class Meta:
        model = Proposal
        fields = (
            "id",
            "experiment",
            "plan",
            "rank",
            "kind",
            "title",
            "status",
            "predicted_step_time_s",
            "predicted_speedup",
            "confidence",
            "created_at",
            "review",
        )
        read_only_fields = fields

    @extend_schema_field(ReviewSerializer(allow_null=True))
    def get_review(self, proposal: Proposal) -> dict[str, Any] | None:
        review = getattr(proposal, "review", None)
        return ReviewSerializer(review).data if review is not None else None


class ProposalContractSerializer(ProposalSerializer):
    """A proposal as in `asap propose --json`, with its ids and its review."""

    mesh = serializers.DictField(help_text='{"ici": {axis: size}, "dcn": {axis: size}}')
    changes = serializers.DictField()
    predicted = serializers.DictField()
    reasoning = serializers.CharField()
    trade_offs = serializers.ListField(child=serializers.CharField())
    citations = serializers.ListField(child=serializers.DictField())

    class Meta(ProposalSerializer.Meta):
        fields = (
            *ProposalSerializer.Meta.fields,
            "mesh",
            "changes",
            "predicted",
            "reasoning",
            "trade_offs",
            "citations",
        )


class PlanSerializer(serializers.ModelSerializer[PlanRecord]):
    experiment = serializers.IntegerField(source="run.experiment_id", read_only=True)
    constraints = serializers.DictField(read_only=True)
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True,
        help_text="Who requested it; null if made by the Coordinator.",
    )  # fmt: skip
    author = serializers.SerializerMethodField(
        help_text="The language model that chose the proposals and wrote their rationale; empty: the built-in rules."
    )

    def get_author(self, plan: PlanRecord) -> str:
        return getattr(plan, "written_by", None) or ""

    class Meta:
        model = PlanRecord
        fields = ("id", "experiment", "run", "constraints", "author", "created_by", "created_at")
        read_only_fields = fields


class PlanContractSerializer(PlanSerializer):
    """A plan as in `asap propose --json`."""

    diagnosis = serializers.DictField(allow_null=True)
    proposals = serializers.ListField(child=serializers.DictField())
    rejected = serializers.ListField(child=serializers.DictField())
    considered = serializers.IntegerField()

    class Meta(PlanSerializer.Meta):
        fields = (*PlanSerializer.Meta.fields, "diagnosis", "proposals", "rejected", "considered")


class OwnMeshRequest(serializers.Serializer[Any]):
    mesh = serializers.DictField(help_text='{"ici": {axis: size}, "dcn": {axis: size}}')
    changes = serializers.DictField(
        required=False, default=dict, help_text="Training keys that differ from the current configuration."
    )


class OwnMeshSerializer(serializers.Serializer[Any]):
    """A custom proposal (kind `own`), not stored.  violations: the rules and constraints it violates."""

    title = serializers.CharField()
    mesh = serializers.DictField()
    changes = serializers.DictField()
    predicted = serializers.DictField()
    confidence = serializers.FloatField()
    reasoning = serializers.CharField(allow_blank=True)
    violations = serializers.ListField(child=serializers.DictField())


class LaunchFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=[(kind, kind) for kind in KINDS])
    produced = serializers.BooleanField()
    text = serializers.CharField(allow_blank=True)
    notes = serializers.ListField(child=serializers.CharField())


class ProposalLaunchFilesSerializer(serializers.Serializer[Any]):
    proposal = serializers.IntegerField()
    rank = serializers.IntegerField()
    approved = serializers.BooleanField(help_text="Whether a reviewer has approved it.")
    files = LaunchFileSerializer(many=True)


@extend_schema_view(list=extend_schema(tags=["proposals"]))
class ProposalViewSet(mixins.ListModelMixin, TeamObjects[Proposal]):
    queryset = Proposal.objects.select_related("review__author", "experiment")
    serializer_class = ProposalSerializer
    filterset_fields = ("experiment", "status")

    def get_queryset(self) -> QuerySet[Proposal]:
        rows = super().get_queryset()
        return rows.defer("data") if self.action == "list" else rows

    @extend_schema(responses=ProposalContractSerializer, tags=["proposals"])
    def retrieve(self, request: Request, pk: str) -> Response:
        proposal = self.get_object()
        return Response({**proposal.value.to_json(), **ProposalSerializer(proposal).data})

    @extend_schema(responses={200: ProposalLaunchFilesSerializer, 409: Detail}, tags=["proposals"])
    @action(detail=True, pagination_class=None)
    def launch(self, request: Request, pk: str) -> Response:
        """Launch files for MaxText, plain JAX, AXLearn and Megatron-LM, and as an ASAP Web configuration.

        For a tool that cannot express the proposal, `produced` is false, `text` empty, and `notes` gives the reason.
        The files use the configuration the proposal was predicted for.  409 if that is no longer valid.
        """
        proposal = self.get_object()
        files = launching.files(proposal)
        approved = proposal.status == Proposal.Status.APPROVED
        value = {"proposal": proposal.pk, "rank": proposal.rank, "approved": approved, "files": files}
        return Response(ProposalLaunchFilesSerializer(value).data)


@extend_schema_view(list=extend_schema(tags=["proposals"]))
class PlanViewSet(mixins.ListModelMixin, TeamObjects[PlanRecord]):
    """Plans as in `asap propose --json`: diagnosis, the three proposals, the rejected candidates."""

    queryset = PlanRecord.objects.select_related("run__experiment", "run__profile", "created_by").order_by("-pk")
    serializer_class = PlanSerializer
    filterset_class = OfRun
    write_role = Role.ENGINEER

    def get_queryset(self) -> QuerySet[PlanRecord]:
        rows = super().get_queryset().annotate(written_by=KeyTextTransform("author", "data"))
        return rows.defer("data") if self.action == "list" else rows

    @extend_schema(responses=PlanContractSerializer, tags=["proposals"])
    def retrieve(self, request: Request, pk: str) -> Response:
        plan = self.get_object()
        return Response({**plans.contract(plan), **PlanSerializer(plan).data})

    @extend_schema(
        request=OwnMeshRequest, responses={200: OwnMeshSerializer, 400: ConfigErrors, 403: Detail}, tags=["proposals"]
    )
    @action(detail=True, methods=["post"], pagination_class=None, write_role=Role.VIEWER)
    def evaluate(self, request: Request, pk: str) -> Response:
        """Validate and predict a custom mesh or an edited proposal for this plan's run.  Stores nothing."""
        plan, asked = self._own(request)
        evaluated = custom_mesh.evaluate(plan, asked)
        return Response(clean_json(evaluated.to_json()))

    @extend_schema(
        request=OwnMeshRequest,
        responses={201: ProposalContractSerializer, 400: ConfigErrors, 403: Detail},
        tags=["proposals"],
    )
    @action(detail=True, methods=["post"], url_path="proposals", pagination_class=None)
    def add(self, request: Request, pk: str) -> Response:
        """Add a custom mesh to the plan as a proposal, after the same checks; requires an engineer."""
        plan, asked = self._own(request)
        made = custom_mesh.add(plan, request.user, asked)
        contract = {**made.value.to_json(), **ProposalSerializer(made).data}
        return Response(contract, status=status.HTTP_201_CREATED)

    def _own(self, request: Request) -> tuple[PlanRecord, Candidate]:
        plan = self.get_object()
        return plan, Candidate(**validated(OwnMeshRequest, request))


class ReviewsView(ListAPIView[Review]):
    permission_classes = [TeamRole]
    pagination_class = Paging
    serializer_class = ReviewSerializer
    queryset = Review.objects.select_related("author").order_by("-pk")
    filterset_class = OfProposal

    def get_queryset(self) -> QuerySet[Review]:
        return super().get_queryset().filter(proposal__team_id__in=team_ids(self.request.user))

    @extend_schema(operation_id="reviews_list", tags=["reviews"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The reviews of your teams, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="reviews_create",
        request=ReviewRequest,
        responses={201: ReviewSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["reviews"],
    )
    def post(self, request: Request) -> Response:
        """Approve or reject a proposal; requires a reviewer.  409, naming the reviewer, if already reviewed."""
        values = validated(ReviewRequest, request)
        proposal = get_for(
            request.user, Proposal.objects.select_related("plan__run"), Role.VIEWER, pk=values["proposal"]
        )
        review = reviews.decide(proposal, request.user, values["decision"], values["comment"])
        return Response(ReviewSerializer(review).data, status=status.HTTP_201_CREATED)
