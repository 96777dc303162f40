"""What the workers do."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from experiments.services import runs
from proposals.services import consultants, consulting, coordinator, measuring, regenerating


@shared_task(name="proposals.tasks.advance_run", acks_late=True, reject_on_worker_lost=True)
def advance_run(run_pk: int) -> None:
    """Do the Coordinator's work on a run as far as it goes."""
    coordinator.advance(run_pk)


@shared_task(name="proposals.tasks.propose_again", acks_late=True, reject_on_worker_lost=True)
def propose_again(request_pk: int) -> None:
    """Make the plan that somebody asked for."""
    regenerating.make(request_pk)


@shared_task(name=consulting.CONSULT, acks_late=True, reject_on_worker_lost=True)
def consult(consultation_pk: int) -> None:
    """Let the language model read a run, unless it has or a live worker lets it."""
    consultants.consult(consultation_pk)


@shared_task(name="proposals.tasks.take_over_stale", ignore_result=True, expires=60)
def take_over_stale() -> list[int]:
    """Queue the runs that no live worker has; measure, propose and consult what one left undone."""
    measuring.sweep()
    regenerating.sweep()
    consulting.sweep()
    return runs.take_over_stale()


@worker_ready.connect
def sweep_at_start(sender: Any = None, **kwargs: Any) -> None:
    """A worker that starts looks at once for what an earlier one left."""
    take_over_stale.delay()
