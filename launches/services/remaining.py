"""Jobs at a backend that are still to be cancelled there; they run on unmonitored if their experiment is deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from experiments.models import Experiment
from experiments.services.deleting import DeletionBlocker, asked
from launches.models import ArmRun, Launch
from launches.services import queue
from launches.services.arms import proposal_of

S = ArmRun.Status
#: How long after a launch has closed cancelling a job is tried again, and blocks the deletion.
TRIED_FOR = timedelta(days=1)
#: From one attempt to the next at most.
_PAUSE = timedelta(hours=1)
GIVEN_UP = "could not be cancelled within a day: cancel it there yourself."


def runs(experiment: Experiment) -> QuerySet[ArmRun]:
    """Those whose job is queued, running or not cancelled yet; not those that have reported or ended."""
    by_itself = Q(reported_at__isnull=False) | Q(ended_at__isnull=False)
    to_end = Q(status__in=(S.CANCELLED, S.FAILED), released=False) & ~Q(job="") & ~by_itself
    found = ArmRun.objects.filter(Q(status__in=queue.REPORTING) | to_end, launch__experiment=experiment)
    return found.select_related("launch__proposal").order_by("launch_id", "pk")


def is_due(run: ArmRun) -> bool:
    """Whether to try to cancel the job of a run that has ended here: after pauses that double from the closing of its
    launch on, for the last time once `TRIED_FOR` is over."""
    closed, tried = run.launch.closed_at, run.heartbeat_at
    if closed is None or tried is None or tried <= closed:
        return True
    return tried - closed <= TRIED_FOR and timezone.now() - tried >= min(tried - closed, _PAUSE)


def not_cancelled(run: ArmRun, said: str) -> None:
    """Keep when cancelling its job failed, and say so on the run unless it has reported.  said: by the backend."""
    given_up = _is_given_up(run)
    state = GIVEN_UP if given_up else f"could not be cancelled yet: {said}"
    job = f"job {run.job_shown} on {run.launch.backend} {state}"
    reason = run.reason
    if run.status == S.CANCELLED:
        reason = f"Cancelled, but {job}"
    elif run.status == S.FAILED and run.reported_at is None and given_up:
        reason = f"{reason} But {job}"
    ArmRun.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now(), reason=reason)


def _is_given_up(run: ArmRun) -> bool:
    closed = run.launch.closed_at
    return closed is not None and timezone.now() - closed > TRIED_FOR


def ending(run: ArmRun) -> DeletionBlocker:
    """Hold for the job of a run that was cancelled or has failed: it blocks for `TRIED_FOR`, and is then only named."""
    job = f"Job {run.job_shown} on {run.launch.backend}"
    if _is_given_up(run):
        return DeletionBlocker(f"{job} {GIVEN_UP}", blocks=False)
    return DeletionBlocker(f"{job} is still being cancelled; delete the experiment in a minute.")


def holds(experiment: Experiment, **_: Any) -> list[DeletionBlocker]:
    """Of launches that compare a proposal; trials are their campaign's."""
    waves = Launch.objects.filter(experiment=experiment, closed_at=None, proposal__isnull=False)
    found = [_open(launch) for launch in waves.select_related("proposal").order_by("pk")]
    closed = runs(experiment).filter(launch__proposal__isnull=False, launch__closed_at__isnull=False)
    return found + [ending(run) for run in closed]


def _open(launch: Launch) -> DeletionBlocker:
    named = f"Launch {launch.pk} of proposal {proposal_of(launch).rank}"
    return DeletionBlocker(
        f"{named} has not ended; its runs would continue unmonitored.",
        launch.get_absolute_url(),
        f"/api/launches/{launch.pk}/cancel/",
    )


asked.connect(holds, dispatch_uid="launches")
