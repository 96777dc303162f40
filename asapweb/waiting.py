"""What waits for a person: decisions, failed runs, runs without a configuration."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from accounts.models import Membership, Role
from experiments.models import Experiment, ReviewState, RunStatus


def with_review_state(experiments: QuerySet[Experiment]) -> QuerySet[Experiment]:
    """Annotate `open_review` (ready, the newest proposals wait for a decision) and `approved` (one was approved).

    The shipped samples are there to explore: nobody has to decide on them.
    """
    return experiments.annotate(
        approved=Q(review=ReviewState.APPROVED),
        open_review=Q(state=RunStatus.READY, review=ReviewState.OPEN, sample=""),
    )


def waiting(membership: Membership) -> QuerySet[Experiment]:
    """Return the team's experiments in which this member can do the next step, the longest waiting first."""
    due = Q(pk__in=[])
    if membership.may(Role.ENGINEER):
        due |= Q(state__in=[RunStatus.FAILED, RunStatus.CONFIGURING])
    if membership.may(Role.REVIEWER):
        due |= Q(open_review=True)
    experiments = with_review_state(Experiment.objects.filter(team=membership.team, sample=""))
    return experiments.filter(due).order_by("updated_at", "pk")


def waiting_count(membership: Membership) -> int:
    return waiting(membership).count()
