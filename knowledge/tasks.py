"""What the workers do for retrieval."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from knowledge.services import documents, embedding


@embedding.EMBEDDINGS.implementation()
def embed(pk: int) -> None:
    """Give rows of a model their vectors for a while."""
    embedding.work(pk)


@documents.READING.implementation()
def read_document(pk: int) -> None:
    """Cut a document that somebody added into passages."""
    documents.read(pk)


@shared_task(name="knowledge.tasks.sweep", ignore_result=True, expires=60)
def sweep() -> list[str]:
    """Queue what has no vector of the current model."""
    return embedding.sweep()


@worker_ready.connect
def sweep_at_start(sender: Any = None, **kwargs: Any) -> None:
    """Another version may bring another model."""
    sweep.apply_async(countdown=20)
