"""Vectors for rows that have none, or one of an older text or model; in the background, in batches.

Nothing is lost or done twice when a worker dies: what has its vector is skipped.  Until a row has its new vector the
old one stays; words find the row all the same.
"""

from __future__ import annotations

import json
import time
from typing import Any

from django.apps import apps
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from psycopg import sql

from jobs import workers
from jobs.declared import DIALOGUE_QUEUE
from jobs.jobs import Jobs, released
from knowledge.embedded import Embedded
from knowledge.embedding.minilm import DIMENSION, NAME, embed
from knowledge.models import EmbeddingJob

Status = EmbeddingJob.Status
#: Not in the default queue: a profile must not wait for passages.
EMBEDDINGS = Jobs(EmbeddingJob, (Status.QUEUED, Status.WORKING), Status.WORKING, queue=DIALOGUE_QUEUE)
#: Rows read, embedded and written together.
BATCH = 32
#: One task works so long, then lets others have the worker.
SLICE_S = 60.0


def embedded_models() -> list[type[Embedded]]:
    return [model for model in apps.get_models() if issubclass(model, Embedded)]


def stale(model: type[Embedded]) -> QuerySet[Any]:
    """Return the rows without a vector for their present text."""
    return model._default_manager.filter(~Q(embedding_model=NAME) | ~Q(embedded_hash=F("content_hash")))


def enqueue(model: type[Embedded]) -> None:
    """Let a worker give the rows their vectors, once the transaction has committed."""
    transaction.on_commit(lambda: _queue(model))


def _queue(model: type[Embedded]) -> None:
    job, _ = EmbeddingJob.objects.get_or_create(embedded=model._meta.label_lower)
    # Whoever is at it looks, once done, for what was written meanwhile.
    idle = EmbeddingJob.objects.filter(pk=job.pk, status=Status.IDLE)
    if idle.update(status=Status.QUEUED, heartbeat_at=timezone.now()):
        EMBEDDINGS.send(job.pk)


def sweep() -> list[str]:
    """Queue every model that has rows to embed; their labels."""
    waiting = [model for model in embedded_models() if stale(model).exists()]
    for model in waiting:
        _queue(model)
    return [model._meta.label_lower for model in waiting]


def work(pk: int) -> None:
    """Embed the rows of one model for a while, unless a live worker does, and queue the rest."""
    worker = workers.this_thread()
    if not EMBEDDINGS.claim(pk, worker):
        return
    job = EmbeddingJob.objects.get(pk=pk)
    model: Any = apps.get_model(job.embedded)
    given_up = job.attempts > EMBEDDINGS.most_attempts  # the next sweep begins anew
    if not given_up:
        with EMBEDDINGS.beating(pk, worker):
            embed_some(model)
    row = EMBEDDINGS.row_of_worker(pk, worker)
    if row.update(status=Status.IDLE, **released()) and not given_up and stale(model).exists():
        _queue(model)


def embed_some(model: type[Embedded], for_s: float = SLICE_S) -> None:
    """Embed for a while, at least one batch.  Raises EmbeddingError."""
    deadline = time.monotonic() + for_s
    waiting = stale(model).order_by("pk")
    while batch := list(waiting[:BATCH]):
        _embed_batch(model, batch)
        if time.monotonic() > deadline:
            break
        waiting = waiting.filter(pk__gt=batch[-1].pk)  # one that changed meanwhile waits for the next task


#: One statement for a batch.  Rows written without `stamp` get their hash now; those changed meanwhile keep waiting.
_WRITE = """
    update {table} as row set embedding = given.vector::halfvec, embedding_model = %s, embedding_dimension = %s,
        embedded_hash = given.hash, content_hash = given.hash
    from unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) as given (pk, known, hash, vector)
    where row.id = given.pk and row.content_hash = given.known
"""


def _embed_batch(model: type[Embedded], batch: list[Any]) -> None:
    known = [row.content_hash for row in batch]
    vectors = embed([row.embedding_text() for row in batch])
    statement = sql.SQL(_WRITE).format(table=sql.Identifier(model._meta.db_table))
    hashes, written = [row.stamp() for row in batch], [json.dumps(vector.tolist()) for vector in vectors]
    with connection.cursor() as cursor:
        cursor.execute(statement, [NAME, DIMENSION, [row.pk for row in batch], known, hashes, written])
