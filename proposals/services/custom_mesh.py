"""A mesh of the user's own, or an edited proposal: checked and priced at once, and added to the plan if it may run."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.db.models import Max

from accounts.models import Role, User
from accounts.permissions import check
from accounts.refusals import Refused
from experiments.models import Experiment, ReviewState
from experiments.services import events, profiles
from perfmodel.config import ConfigError
from proposals.candidate import MeshAndChanges, is_same, keeps
from proposals.models import PlanRecord, Proposal
from proposals.plan import ProposalPlan
from proposals.services import checks, context, plans


class CustomMeshError(Refused):
    """This cannot be priced, or not be added."""

    status = 400


class AlreadyProposed(CustomMeshError):
    """It is this proposal."""

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(f"This is already proposal {proposal.rank}.")
        self.proposal = proposal


def evaluate(plan: PlanRecord, of: MeshAndChanges) -> ProposalPlan:
    """The configuration as a proposal of kind `own`; broken rules are in `violations`.  Nothing is stored.

    Raises CustomMeshError for what is no mesh or no training key at all, and where the plan's run cannot be read any
    more.
    """
    try:
        return context.pricer(plan).evaluate(of, plan.asked)
    except (ConfigError, profiles.NotIngested) as error:
        raise CustomMeshError(str(error)) from error


def add(plan: PlanRecord, user: User, of: MeshAndChanges) -> Proposal:
    """Add the configuration to the plan, after the same checks as any other, to be approved and launched.

    Raises CustomMeshError where it breaks a rule or a constraint, or is in the plan already; Http404 and
    PermissionDenied below engineer.
    """
    check(user, plan, Role.ENGINEER)
    evaluated = evaluate(plan, of)
    read = context.of_plan(plan)
    if keeps(read.config, evaluated):
        raise CustomMeshError("This is the current configuration; change an axis or a setting.")
    if evaluated.violations:
        raise CustomMeshError(evaluated.violations[0].reason)
    with transaction.atomic():
        events.lock(plan.run.experiment_id)
        for other in plan.proposals.order_by("rank"):  # not what was prefetched before the lock
            if is_same(read.config, other.value, evaluated):
                raise AlreadyProposed(other)
        evaluated = replace(evaluated, rank=(plan.proposals.aggregate(last=Max("rank"))["last"] or 0) + 1)
        made = plans.row(plan.run, plan, evaluated)
        made.added_by = user
        made.save()
        verdict = checks.check(plan, only=made.rank)
        if verdict.broken:
            raise CustomMeshError(" ".join(verdict.broken))
        checks.store(plan.run, verdict)
        reopened = Experiment.objects.filter(pk=plan.run.experiment_id).exclude(review=ReviewState.APPROVED)
        reopened.update(review=ReviewState.OPEN)
        events.append(
            plan.run.experiment_id, "proposal", "user", run=plan.run, user=user,
            data={"plan": plan.pk, "added": True, "proposals": [plans.event_summary(evaluated)]},
        )  # fmt: skip
    made.refresh_from_db()
    return made
