"""Retrieval over 100,000 passages: what a search takes, by mode and with filters, from the query's words to the hits.

The passages are drawn from the shipped ones: each holds sentences of two or three of them and a vector between theirs,
so that words and vectors are as crowded as in a real collection.  The shipped ones are among them with their
questions.  The queries are the labelled questions of the tests.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 100_000
AIM_S = 0.050
SEED = 7
QUESTIONS = Path(__file__).resolve().parent.parent / "evaluation" / "retrieval" / "questions.toml"


@contextmanager
def database() -> Iterator[None]:
    """An empty database of our own, migrated; gone afterwards.  Set before Django reads its settings."""
    from asapweb.launcher.postgres import place_cluster

    with tempfile.TemporaryDirectory(prefix="asap-bench-", dir="/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)
        cluster = place_cluster(home, home / "postgres.log")
        with cluster.running():
            cluster.create_database()
            os.environ |= {
                "ASAP_HOME": folder, "DATABASE_URL": cluster.url, "CELERY_BROKER_URL": "memory://",
                "ASAP_HASHED_STATIC": "0", "ASAP_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "asapweb.settings",
            }  # fmt: skip
            for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
                os.environ.pop(name, None)
            import django
            from django.core.management import call_command
            from django.db import connections

            django.setup()
            call_command("migrate", verbosity=0, interactive=False)
            try:
                yield
            finally:
                connections.close_all()


def fill(rows: int) -> float:
    """Write so many passages with their vectors; seconds that building the vector index took."""
    from django.db import connection

    from knowledge.embedding.minilm import NAME, embed
    from knowledge.models import Document, Kind, Passage, stamped
    from knowledge.passage_file import read_all

    shipped = [passage for file in read_all() for passage in file.passages]
    vectors = embed([f"{passage.title}\n{passage.text}" for passage in shipped])
    sentences = [re.split(r"(?<=[.:;])\s+", passage.text) for passage in shipped]
    random = np.random.default_rng(SEED)
    document = Document.objects.create(kind=Kind.TEXT, title="Benchmark", name="benchmark", sha256="-")
    index = next(one for one in Passage._meta.indexes if one.name.endswith("hnsw_minilm"))
    with connection.schema_editor() as editor:
        editor.remove_index(Passage, index)  # building it at the end is faster than row by row
    for start in range(0, rows, 2000):
        made = []
        for n in range(start, min(start + 2000, rows)):
            members = random.choice(len(shipped), size=random.integers(2, 4), replace=False)
            vector = (random.dirichlet(np.ones(len(members))) @ vectors[members]) + random.normal(0, 0.015, 384)
            own = shipped[members[0]]
            text = " ".join(sentence for m in members for sentence in random.permutation(sentences[m])[:2])
            made.append(
                Passage(
                    document=document, key=f"b{n}", position=n, title=own.title, text=text, formula=own.formula,
                    applies_when=own.applies_when, section=own.section, tags=list(own.tags),
                    hardware=list(own.hardware), bottlenecks=list(own.bottlenecks), embedding_model=NAME,
                    embedding_dimension=384, embedding=vector / np.linalg.norm(vector),
                )
            )  # fmt: skip
        for passage in stamped(made):
            passage.embedded_hash = passage.content_hash
        Passage.objects.bulk_create(made)
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("set maintenance_work_mem = '512MB'")
        with connection.schema_editor() as editor:
            editor.add_index(Passage, index)
        took = time.perf_counter() - began
        cursor.execute("vacuum analyze knowledge_passage")
    return took


@dataclass(frozen=True)
class Timed:
    """Seconds of single calls.

    processor_s: what this process and its backend of PostgreSQL used of the processors: about what a call takes where
    nothing else runs.
    """

    wall_s: list[float]
    processor_s: list[float]

    @property
    def p95_s(self) -> float:
        return float(np.percentile(self.wall_s, 95))

    def __str__(self) -> str:
        columns = (np.percentile(times, share) * 1e3 for times in (self.wall_s, self.processor_s) for share in (50, 95))
        return "".join(f"{column:9.1f} ms" for column in columns)


def timed(queries: list[str], call: Callable[[str], Any], warm: int = 5) -> Timed:
    """Each call timed, after the first `warm` were made without."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        backend = Path(f"/proc/{cursor.fetchone()[0]}/schedstat")

    def processor() -> float:
        return time.process_time() + int(backend.read_text().split()[0]) / 1e9

    for query in queries[:warm]:
        call(query)
    wall, used = [], []
    for query in queries:
        before, began = processor(), time.perf_counter()
        call(query)
        wall.append(time.perf_counter() - began)
        used.append(processor() - before)
    return Timed(wall, used)


def agreement(queries: list[str]) -> float:
    """Share of the exact ten nearest that the index finds."""
    from django.db import connection, transaction

    from knowledge.embedding.minilm import embed
    from knowledge.models import Passage
    from knowledge.vector_search import nearest

    found = 0
    for query in queries:
        vector = embed([query])[0]
        near = {pk for pk, _ in nearest(Passage.objects.all(), vector, 10)}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("set local enable_indexscan = off")
            exact = {pk for pk, _ in nearest(Passage.objects.all(), vector, 10)}
        found += len(near & exact)
    return found / (10 * len(queries))


def main(rows: int = ROWS) -> dict[str, float]:
    queries = [question["question"] for question in tomllib.loads(QUESTIONS.read_text())["question"]]
    results: dict[str, float] = {}
    with database():
        from django.db import connection

        from evaluation.retrieval.evaluate import load
        from knowledge.embedding.minilm import embed
        from knowledge.services.search import search

        load()
        began = time.perf_counter()
        indexing = fill(rows)
        print(
            f"{rows:,} passages written in {time.perf_counter() - began:.0f} s, of it the vector index {indexing:.0f} s"
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_total_relation_size('knowledge_passage'), pg_relation_size('passage_hnsw_minilm')"
            )
            total, index = cursor.fetchone()
        print(f"table and indexes {total / 1e6:,.0f} MB, of it the vector index {index / 1e6:,.0f} MB")
        print(f"{len(queries)} questions; aim: p95 below {AIM_S * 1e3:.0f} ms\n")
        print(f"{'':32}{'median':>12}{'p95':>12}{'processor':>12}{'p95':>12}")
        cases: dict[str, Callable[[str], Any]] = {
            "vector of the query": lambda query: embed([query]),
            "fused": lambda query: search(None, query),
            "by vector": lambda query: search(None, query, mode="vector"),
            "by words": lambda query: search(None, query, mode="text"),
            "fused, of GPUs": lambda query: search(None, query, hardware="gpu"),
            "fused, v5p and communication": lambda query: search(
                None, query, hardware="v5p", bottleneck="communication"
            ),
            "fused, input (few passages)": lambda query: search(None, query, bottleneck="input"),
        }
        for name, call in cases.items():
            measured = timed(queries, call)
            results[f"{name}_p95_s"] = measured.p95_s
            print(f"{name:32}{measured}", flush=True)
        share = agreement(queries[:30])
        print(f"\nthe index finds {share:.1%} of the ten nearest")
        results["agreement"] = share
    return results


if __name__ == "__main__":
    main()
