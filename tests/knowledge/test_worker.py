"""Vectors by a real worker over a real Redis, killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from knowledge.models import Document, Kind, Passage
from knowledge.services.embedding import enqueue, stale
from tests.backend.broker import broker
from tests.backend.services import eventually, redis_server, worker
from tests.knowledge.conftest import add_passages

#: Vectors are computed by the workers that answer; looking for what is left is anybody's work.
OPTIONS = ("--pool", "threads", "--concurrency", "2", "--queues", "celery,dialogue")

#: So many that the worker does not end them before it is killed.
MANY = 384

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_a_killed_worker_loses_no_vector_and_computes_none_twice(tmp_path: Path) -> None:
    document = Document.objects.create(kind=Kind.SHIPPED, title="Many", name="many.md", sha256="1")
    add_passages(document, {f"p{n}": (f"Passage {n}", "One of many on sharding.") for n in range(MANY)})
    with redis_server() as redis, broker(redis.url):
        with worker(redis.url, tmp_path, *OPTIONS) as first:
            enqueue(Passage)
            eventually(lambda: stale(Passage).count() < MANY, 120, "the first vectors are there")
            first.kill()
        done = dict(Passage.objects.exclude(embedding=None).values_list("pk", "embedding"))
        assert 0 < len(done) < MANY
        with worker(redis.url, tmp_path, *OPTIONS):  # looks at its start for what is left
            eventually(lambda: not stale(Passage).exists(), 180, "all vectors are there")
    again = dict(Passage.objects.filter(pk__in=done).values_list("pk", "embedding"))
    assert all(list(again[pk]) == list(done[pk]) for pk in done)
