"""What the workers do for the history; vectors of records are computed by knowledge.tasks."""

from __future__ import annotations

from celery import shared_task

from history.services import imports


@imports.READING.implementation()
def work_import(pk: int) -> None:
    """Check or import a file of records."""
    imports.work(pk)


@shared_task(name="history.tasks.forget_imports", ignore_result=True, expires=600)
def forget_imports() -> None:
    """Remove checked files that nobody imported."""
    imports.forget_old()
