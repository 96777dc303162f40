"""Runs in the hands of workers: to be submitted, and to be read once everything was reported."""

from __future__ import annotations

from jobs.jobs import Jobs, released
from launches.models import ArmRun

S = ArmRun.Status
RUNS = Jobs(ArmRun, (S.QUEUED, S.COLLECTING))
#: Before collecting: whoever reports may do so even before we have noticed that the job began.
REPORTING = (S.QUEUED, S.SUBMITTED, S.RUNNING)


def begin_collecting(pk: int) -> bool:
    """Hand the run to a worker that reads its reports; False where it has ended or is being read."""
    moved = ArmRun.objects.filter(pk=pk, status__in=REPORTING).update(status=S.COLLECTING, **released(sent=True))
    if moved:
        RUNS.enqueue(pk)
    return bool(moved)
