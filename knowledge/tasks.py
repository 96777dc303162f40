"""What the workers do for retrieval."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready
from django.apps import apps

from knowledge.models import Document
from knowledge.services import documents, embedding


@shared_task(name=embedding.EMBED, acks_late=True, reject_on_worker_lost=True)
def embed(label: str) -> None:
    """Give rows of a model (`knowledge.passage`) their vectors for a while, and queue the rest."""
    again_s = embedding.embed_some(apps.get_model(label))
    if again_s is not None:
        embed.apply_async((label,), countdown=again_s)


@shared_task(
    name=documents.READ, acks_late=True, reject_on_worker_lost=True,
    soft_time_limit=documents.TASK_LIMIT_S, time_limit=documents.TASK_LIMIT_S + 30,
)  # fmt: skip
def read_document(pk: int) -> None:
    """Cut a document that somebody added into passages."""
    document = Document.objects.filter(pk=pk).first()
    if document is not None:
        documents.read(document)


@shared_task(name="knowledge.tasks.sweep", ignore_result=True, expires=60)
def sweep() -> list[str]:
    """Queue what has no vector of the current model, and documents that an earlier worker left."""
    documents.resume()
    return embedding.sweep()


@shared_task(name="knowledge.tasks.resume_documents", ignore_result=True, expires=60)
def resume_documents() -> list[int]:
    """Queue the documents that an earlier worker left."""
    return documents.resume()


@worker_ready.connect
def sweep_at_start(sender: Any = None, **kwargs: Any) -> None:
    """Another model may have been configured, or a broker have lost what was queued."""
    sweep.apply_async(countdown=20)
