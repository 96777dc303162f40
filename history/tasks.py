"""What the workers do for the history; vectors of records are computed by knowledge.tasks."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from history.models import RecordImport
from history.services import imports


@shared_task(name=imports.WORK_IMPORT, acks_late=True, reject_on_worker_lost=True)
def work_import(pk: int) -> None:
    """Check or import a file of records."""
    made = RecordImport.objects.select_related("team", "created_by").filter(pk=pk).first()
    if made is not None:
        imports.work(made)


@shared_task(name="history.tasks.resume_imports", ignore_result=True, expires=60)
def resume_imports() -> list[int]:
    """Queue what an earlier worker left."""
    return imports.resume()


@worker_ready.connect
def resume_at_start(sender: Any = None, **kwargs: Any) -> None:
    resume_imports.apply_async(countdown=10)
