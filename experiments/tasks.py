"""What the workers do for experiments by themselves."""

from __future__ import annotations

from celery import shared_task

from experiments.services import leftovers, retention


@shared_task(name="experiments.tasks.remove_old_payloads", ignore_result=True, expires=3600)
def remove_old_payloads() -> int:
    """Take out what teams do not keep any longer."""
    return retention.sweep()


@shared_task(name="experiments.tasks.remove_leftovers", ignore_result=True, expires=600)
def remove_leftovers() -> list[str]:
    """Remove files that a killed process left."""
    return leftovers.remove()
