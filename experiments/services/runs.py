"""The life of a run: claimed by one worker, moved by compare-and-set with its Event, failed, retried, taken over."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User
from accounts.refusals import Refused
from experiments.models import Experiment, Run, RunStatus
from experiments.services import events
from jobs.jobs import Jobs, released

WORKING = [status for status in RunStatus if status.is_working]
#: The Coordinator does them.
RUNS = Jobs(Run, tuple(WORKING), team="team")


class RunError(Refused):
    """What was asked for cannot be done in the run's current status.  The text is a sentence for the user."""


def newest(experiment: Experiment) -> Run | None:
    return experiment.runs.select_related("profile").order_by("-pk").first()


def is_without_profile(run: Run) -> bool:
    """Whether nothing was ever uploaded for the run: it is based on the step time in its configuration."""
    return not run.profile.files.exists()


def jobs_before(run: Run) -> int | None:
    """Return the number of jobs that start before a run that waits for a worker; None if it does not wait."""
    return RUNS.jobs_before(run.pk) if RunStatus(run.status).is_working and not run.worker else None


def can_wait(team: Team) -> bool:
    """Return True if the team has fewer waiting runs than `ASAP_TEAM_WAITING` allows."""
    return RUNS.waiting().filter(team=team).count() < settings.TEAM_WAITING


def start(
    experiment: Experiment, profile: Any, *, user: User | None, status: RunStatus = RunStatus.UPLOADED, **data: Any
) -> Run:
    """Create a run of the profile in `status` with its Event, show its state on the experiment, and queue it."""
    with transaction.atomic():
        events.lock(experiment.pk)
        run = Run.objects.create(team_id=experiment.team_id, experiment=experiment, profile=profile, status=status)
        Experiment.objects.filter(pk=experiment.pk).update(state=status, updated_at=timezone.now())
        experiment.state = status
        events.append(experiment, "status", "user", run=run, user=user, data={"from": None, "to": str(status), **data})
        RUNS.enqueue(run.pk)
    return run


def move(
    run: Run,
    old: RunStatus | str,
    new: RunStatus | str,
    *,
    actor: str,
    user: User | None = None,
    worker: str | None = None,
    fields: dict[str, Any] | None = None,
    **data: Any,
) -> bool:
    """Take the run from `old` to `new` with its Event, in one transaction; False if it was no longer in `old`.

    worker: only if this worker still holds the run.  fields: further columns set with the status.  data: further facts
    of the Event.  A run that leaves the workers' hands (ready, failed, waiting for a person) is released.
    """
    new = RunStatus(new)
    now = timezone.now()
    values: dict[str, Any] = {"status": new, **(fields or {})}
    if not new.is_working:
        values |= released()
    elif run.worker:
        values["heartbeat_at"] = now
    if new.is_final:
        values["finished_at"] = now
    with transaction.atomic():
        events.lock(run.experiment_id)
        condition = Q(pk=run.pk, status=old)
        if worker is not None:
            condition &= Q(worker=worker)
        if not Run.objects.filter(condition).update(**values):
            return False
        if not Run.objects.filter(experiment_id=run.experiment_id, pk__gt=run.pk).exists():
            Experiment.objects.filter(pk=run.experiment_id).update(state=new, updated_at=now)
        events.append(
            run.experiment_id,
            "status",
            actor,
            run=run,
            user=user,
            data={"from": str(RunStatus(old)), "to": str(new), **data},
        )
    for name, value in values.items():
        setattr(run, name, value)
    return True


def fail(run: Run, reason: str, *, actor: str = "coordinator", worker: str | None = None, **data: Any) -> bool:
    """End the run with a sentence that says why and what to do next; False if it had already moved on.

    data: further facts of the failure, kept on the run and in its Event.
    """
    old = RunStatus(run.status)
    fields = {"reason": reason, "failed_at": str(old), "failure": data}
    return move(run, old, RunStatus.FAILED, actor=actor, worker=worker, fields=fields, reason=reason, **data)


def retry(run: Run, user: User | None) -> Run:
    """A new run of a failed one's profile, from the stage that failed; what was already read is not read again.

    Raises RunError if the run has not failed, or is not the experiment's newest.
    """
    with transaction.atomic():
        events.lock(run.experiment_id)
        run.refresh_from_db()
        if run.status != RunStatus.FAILED:
            raise RunError("Only a failed analysis can be retried; this one has not failed.")
        if Run.objects.filter(experiment_id=run.experiment_id, pk__gt=run.pk).exists():
            raise RunError("A newer analysis of this experiment has already been started; open that one.")
        status = RunStatus.DIAGNOSING if run.profile.data and run.experiment.config else RunStatus.UPLOADED
        return start(run.experiment, run.profile, user=user, status=status, retry_of=run.pk)


def claim(pk: int, worker: str) -> Run | None:
    """Take the run for this worker; None if it is done, waits for a person, or a live worker has it."""
    if not RUNS.claim(pk, worker):
        return None
    run = Run.objects.select_related("experiment", "profile").get(pk=pk)
    if run.attempts > RUNS.most_attempts:
        stage = RunStatus(run.status).label.lower()
        fail(
            run,
            f"The analysis was started {RUNS.most_attempts} times and its worker died each time while {stage}; "
            "the profile may need more memory than this machine has. Upload fewer steps or hosts, or retry.",
            worker=worker,
        )
        return None
    if run.attempts > 1:
        events.append(
            run.experiment_id,
            "progress",
            "worker",
            run=run,
            data={
                "stage": str(run.status),
                "text": "The worker stopped; another has taken over and resumes from here.",
                "fraction": None,
                "attempt": run.attempts,
            },
        )
    return run
