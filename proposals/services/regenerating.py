"""New proposals for the same run under user constraints.  Earlier plans and their decisions are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Role, User
from accounts.permissions import check
from accounts.refusals import Refused
from experiments.models import Experiment, RunStatus
from experiments.services import configuration, events, profiles, runs
from formatting.text import clean
from jobs.jobs import Jobs
from perfmodel.config import ConfigError
from proposals.constraints import Constraints
from proposals.models import PlanRecord, PlanRequest
from proposals.proposer import propose
from proposals.proposer.precedents import situation
from proposals.services import checks, compiling, confidence, context, plans, precedents

OPEN = (PlanRequest.Status.QUEUED, PlanRequest.Status.WORKING)
REQUESTS = Jobs(PlanRequest, OPEN, PlanRequest.Status.WORKING, team="team")


class RequestError(Refused):
    """Proposals cannot be made as asked."""


def request(experiment: Experiment, user: User, constraints: Mapping[str, Any]) -> PlanRequest:
    """Ask for proposals of the experiment's newest run within the constraints (JSON of `Constraints`).

    Raises RequestError for constraints that are none, a run that is not ready, or while another request is open;
    Http404 and PermissionDenied below engineer.
    """
    check(user, experiment, Role.ENGINEER)
    run = runs.newest(experiment)
    if run is None or run.status != RunStatus.READY:
        raise RequestError("The analysis of this experiment is not ready; wait for its first proposals.")
    asked = checked(experiment, constraints)
    with transaction.atomic():
        events.lock(experiment.pk)
        if PlanRequest.objects.filter(run__experiment=experiment, status__in=OPEN).exists():
            raise RequestError("Proposals for this experiment are already being generated; wait until they are ready.")
        made = PlanRequest.objects.create(
            team_id=experiment.team_id, run=run, constraints=asked.to_json(), created_by=user
        )
        data = {"constraints": made.constraints, "text": list(asked.describe())}
        events.append(experiment, "constraints", "user", run=run, user=user, data=data)
        REQUESTS.enqueue(made.pk)
    return made


def checked(experiment: Experiment, constraints: Mapping[str, Any]) -> Constraints:
    """Raises RequestError with the sentence that says which constraint cannot be kept."""
    config = configuration.load(experiment)
    if config is None:
        raise RequestError("The experiment has no valid configuration; open Configuration and save it again.")
    try:
        parsed = Constraints.from_json(constraints)
        parsed.check(config)
    except ConfigError as error:
        raise RequestError(str(error).removeprefix("constraints.")) from error
    return parsed


def newest(experiment: Experiment) -> PlanRequest | None:
    return PlanRequest.objects.filter(run__experiment=experiment).select_related("created_by").first()


def of_experiment(experiment: Experiment) -> QuerySet[PlanRecord]:
    """All plans, the oldest first."""
    return PlanRecord.objects.filter(run__experiment=experiment).select_related("created_by").order_by("pk")


def make(pk: int) -> None:
    """Make the plan that was asked for, check it, and store all of it or nothing; returns at once where it has ended or
    a live worker makes it."""
    made = REQUESTS.take(pk, _fail, "run__experiment", "run__profile", "created_by", started_at=timezone.now())
    if made is None:
        return
    with REQUESTS.doing(made, _fail, (ConfigError, profiles.NotIngested)):
        _make(made)


def _make(made: PlanRequest) -> None:
    run, experiment = made.run, made.run.experiment
    events.progress(run, "Pricing the legal meshes under the constraints", actor="proposer")
    run_context = context.of_run(run, experiment.config)
    constraints = made.asked
    known = precedents.of_run(run.team_id, situation(run_context.config, run_context.diagnosis))
    learnt = confidence.of_team(run.team_id)
    plan = propose(run_context.profile, run_context.config, run_context.diagnosis, known.values, constraints, learnt)
    with transaction.atomic():
        events.lock(experiment.pk)
        record = plans.store(
            run, plan, constraints=made.constraints, precedents=known.keys, again=True, user=made.created_by,
            config=experiment.config,
        )  # fmt: skip
        checks.store(run, checks.check(record))
        held = REQUESTS.row_of_worker(made.pk, made.worker)
        if not held.update(status=PlanRequest.Status.DONE, plan=record, finished_at=timezone.now()):
            transaction.set_rollback(True)  # another worker has it, and makes the same
            return
        compiling.on_ready(record)


def _fail(made: PlanRequest, reason: str) -> None:
    with transaction.atomic():
        events.lock(made.run.experiment_id)
        held = REQUESTS.row_of_worker(made.pk, made.worker)
        if held.update(status=PlanRequest.Status.FAILED, reason=clean(reason), finished_at=timezone.now()):
            data = {"reason": clean(reason), "constraints": made.constraints}
            events.append(made.run.experiment_id, "error", "proposer", run=made.run, data=data)
