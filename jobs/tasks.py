"""The sweep of all jobs."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from jobs.jobs import sweep_all


@shared_task(name="jobs.tasks.sweep", ignore_result=True, expires=60)
def sweep() -> dict[str, list[int]]:
    """Send again the jobs that no live worker has."""
    return sweep_all()


@worker_ready.connect
def sweep_at_start(sender: Any = None, **kwargs: Any) -> None:
    """A worker that starts looks at once for what an earlier one left."""
    sweep.delay()
