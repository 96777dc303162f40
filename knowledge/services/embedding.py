"""Vectors for rows that have none of the current embedder, or one of an older text; in the background, in batches.

Nothing is lost or done twice when a worker dies: what has its vector is skipped.  Until a row has its new vector the
old one stays, which nobody finds who asks with the new model; words find the row all the same.
"""

from __future__ import annotations

import json
import logging
import time
from hashlib import sha256
from typing import Any, Literal

from django.apps import apps
from django.db import connection, models, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from pgvector.django import HnswIndex
from psycopg import sql

from jobs import workers
from jobs.declared import DIALOGUE_QUEUE
from jobs.jobs import Jobs, released
from knowledge.embedded import Embedded
from knowledge.embedding import Embedder, EmbeddingError, current_embedder, minilm
from knowledge.models import EmbeddingJob

logger = logging.getLogger(__name__)

Left = Literal["none", "some", "failed"]
Status = EmbeddingJob.Status
#: Not in the default queue: a profile must not wait for passages.
EMBEDDINGS = Jobs(EmbeddingJob, (Status.QUEUED, Status.WORKING), Status.WORKING, queue=DIALOGUE_QUEUE)
#: Rows read, embedded and written together.
BATCH = 32
#: One task works so long, then lets others have the worker.
SLICE_S = 60.0
#: So many batches without vectors in a row are no fault of their texts.
FAILURES = 3
#: pgvector's limit for an HNSW index of half-precision vectors; longer ones are compared one by one.
LONGEST_INDEXED = 4000


def embedded_models() -> list[type[Embedded]]:
    return [model for model in apps.get_models() if issubclass(model, Embedded)]


def stale(model: type[Embedded], name: str) -> QuerySet[Any]:
    """The rows without a vector of the named embedder for their present text."""
    return model._default_manager.filter(~Q(embedding_model=name) | ~Q(embedded_hash=F("content_hash")))


def coverage(model: type[Embedded]) -> tuple[int, int]:
    """(rows with a current vector, all rows)."""
    total = model._default_manager.count()
    return total - stale(model, current_embedder().name).count(), total


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
    name = current_embedder().name
    waiting = [model for model in embedded_models() if stale(model, name).exists()]
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
    left: Left = "failed"  # the next sweep begins anew
    if job.attempts <= EMBEDDINGS.most_attempts:
        with EMBEDDINGS.beating(pk, worker):
            left = embed_some(model)
    row = EMBEDDINGS.row_of_worker(pk, worker)
    if row.update(status=Status.IDLE, **released()) and left != "failed" and _waits(model):
        _queue(model)


def embed_some(model: type[Embedded], for_s: float = SLICE_S) -> Left:
    """Embed for a while; whether rows are left, and whether some got no vector."""
    embedder = current_embedder()
    failed = _embed(model, embedder, time.monotonic() + for_s)
    if _waits(model):
        return "failed" if failed else "some"
    _drop_unused_indexes(model, embedder)
    return "none"


def _waits(model: type[Embedded]) -> bool:
    return stale(model, current_embedder().name).exists()


def _embed(model: type[Embedded], embedder: Embedder, deadline: float) -> bool:
    """Whether a batch got no vectors."""
    if not stale(model, embedder.name).exists():
        return False
    try:
        ensure_index(model, embedder)
    except EmbeddingError as error:
        logger.warning("%s: pending embedding: %s", model._meta.label_lower, error)
        return True
    last: Any = None
    failures = ever_failed = 0
    while failures < FAILURES and (last is None or time.monotonic() < deadline):  # at least one batch: it goes on
        waiting = stale(model, embedder.name).order_by("pk")
        batch = list((waiting if last is None else waiting.filter(pk__gt=last))[:BATCH])
        if not batch:
            break
        last = batch[-1].pk
        try:
            _embed_batch(model, embedder, batch)
            failures = 0
        except EmbeddingError as error:
            failures += 1
            ever_failed += 1
            logger.warning("%s from %s on: pending embedding: %s", model._meta.label_lower, batch[0].pk, error)
    return ever_failed > 0


#: One statement for a batch.  Rows written without `stamp` get their hash now; those changed meanwhile keep waiting.
_WRITE = """
    update {table} as row set embedding = given.vector::halfvec, embedding_model = %s, embedding_dimension = %s,
        embedded_hash = given.hash, content_hash = given.hash
    from unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) as given (pk, known, hash, vector)
    where row.id = given.pk and row.content_hash = given.known
"""


def _embed_batch(model: type[Embedded], embedder: Embedder, batch: list[Any]) -> None:
    known = [row.content_hash for row in batch]
    vectors = embedder.embed([row.embedding_text() for row in batch])
    statement = sql.SQL(_WRITE).format(table=sql.Identifier(model._meta.db_table))
    hashes, written = [row.stamp() for row in batch], [json.dumps(vector.tolist()) for vector in vectors]
    with connection.cursor() as cursor:
        cursor.execute(statement, [embedder.name, vectors.shape[1], [row.pk for row in batch], known, hashes, written])


def ensure_index(model: type[Embedded], embedder: Embedder) -> None:
    """The HNSW index of the embedder's vectors, of a model that has such; made while there are none yet, so it takes
    no time."""
    if embedder.dimension > LONGEST_INDEXED or not any(isinstance(one, HnswIndex) for one in model._meta.indexes):
        return
    condition = sql.SQL("embedding_model = {} and embedding_dimension = {}").format(
        sql.Literal(embedder.name), sql.Literal(embedder.dimension)
    )
    statement = sql.SQL(
        "create index if not exists {} on {} using hnsw ((embedding::halfvec({})) halfvec_cosine_ops) where {}"
    ).format(
        sql.Identifier(index_name(model, embedder)),
        sql.Identifier(model._meta.db_table),
        sql.Literal(embedder.dimension),
        condition,
    )
    with connection.cursor() as cursor:
        if index_name(model, embedder) not in _indexes(model):
            cursor.execute(statement)


def index_name(model: type[models.Model], embedder: Embedder) -> str:
    if embedder.name == minilm.NAME:
        return f"{model._meta.model_name}_hnsw_minilm"
    digest = sha256(f"{embedder.name} {embedder.dimension}".encode()).hexdigest()[:8]
    return f"{model._meta.model_name}_hnsw_{digest}"


def _indexes(model: type[models.Model]) -> set[str]:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, model._meta.db_table)
    return {name for name, about in constraints.items() if about["index"] and "_hnsw_" in name}


def _drop_unused_indexes(model: type[Embedded], embedder: Embedder) -> None:
    """Those of embedders that no row has any more; the built-in one's belongs to the schema."""
    ours = {index_name(model, embedder), f"{model._meta.model_name}_hnsw_minilm"}
    for name in _indexes(model) - ours:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("drop index if exists {}").format(sql.Identifier(name)))
