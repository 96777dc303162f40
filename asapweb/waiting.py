"""What waits for a person: decisions, failed runs, runs without a configuration."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import Membership, Role
from experiments.models import Experiment, RunStatus
from proposals.models import PlanRecord, Proposal


def with_review_state(experiments: QuerySet[Experiment]) -> QuerySet[Experiment]:
    """Annotate `open_review` (ready, nothing of the newest plan decided) and `approved` (a proposal was approved)."""
    newest_plan = PlanRecord.objects.filter(run__experiment=OuterRef(OuterRef("pk"))).order_by("-pk").values("pk")[:1]
    of_newest = Proposal.objects.filter(experiment=OuterRef("pk"), plan=newest_plan)
    approved = Exists(Proposal.objects.filter(experiment=OuterRef("pk"), status=Proposal.Status.APPROVED))
    undecided = Exists(of_newest.filter(status=Proposal.Status.PROPOSED))
    return experiments.annotate(
        approved=approved,
        open_review=Q(state=RunStatus.READY) & undecided & ~approved,
    )


def waiting(membership: Membership) -> QuerySet[Experiment]:
    """The team's experiments in which this member can do the next step, the longest waiting first."""
    due = Q(pk__in=[])
    if membership.may(Role.ENGINEER):
        due |= Q(state__in=[RunStatus.FAILED, RunStatus.CONFIGURING])
    if membership.may(Role.REVIEWER):
        due |= Q(open_review=True)
    experiments = with_review_state(Experiment.objects.filter(team=membership.team))
    return experiments.filter(due).order_by("updated_at", "pk")


def waiting_count(membership: Membership) -> int:
    return waiting(membership).count()
