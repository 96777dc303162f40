"""What the workers do for launches."""

from __future__ import annotations

from celery import shared_task

from launches.services import launching, queue


@queue.RUNS.implementation()
def advance_arm_run(run_pk: int) -> None:
    """Submit a run, or read what it reported."""
    launching.advance(run_pk)


@shared_task(name="launches.tasks.follow", ignore_result=True, expires=60)
def follow() -> None:
    """Ask the backends how their jobs are doing."""
    launching.follow()
