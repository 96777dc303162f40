"""The optimization database with 100,000 records: what a page, a search, its facets and similar records take.

The records are sweeps of a few hundred workloads, as one team would gather them: a workload has its chip, size, model
and bottleneck; each of its records changes the mesh or something else.  Vectors lie between those of described records,
so that they are as crowded as real ones.  Times are of the services, from the filters to the rows in memory, with the
query's vector where there is a query.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

from bench.retrieval import database, timed

ROWS = 100_000
AIM_PAGE_S, AIM_RETRIEVAL_S = 0.100, 0.050
SEED = 11
CHIPS = {"v5e": (16, 64, 256), "v5p": (64, 512, 4096), "v6e": (16, 64, 256), "tpu7x": (64, 256), "v4": (64, 512),
         "h100": (8, 64, 512), "h200": (64, 256), "b200": (64, 256), "gb200": (64, 256),
         "a100-80gb": (64, 512)}  # fmt: skip
MODELS = (
    "llama2-7b", "llama3.1-8b", "llama3.1-70b", "llama3.1-405b", "gemma3-27b", "mixtral-8x7b", "mixtral-8x22b",
    "deepseek-v3", "qwen3-32b", "qwen3-235b-a22b", "gpt3-175b", "gpt-oss-120b", "kimi-k2", "mistral-7b",
)  # fmt: skip
#: Parameters of these, rounded.
SIZES = (7e9, 8e9, 7e10, 4.05e11, 2.7e10, 4.7e10, 1.41e11, 6.71e11, 3.2e10, 2.35e11, 1.75e11, 1.2e11, 1e12, 7e9)
KINDS = (("mesh",), ("mesh", "batch"), ("remat",), ("weight_sharding",), ("xla_flags",), ("precision",), ("batch",))
QUERIES = (
    "communication-bound llama on v5e", "less recomputation when memory is free", "expert parallelism inside a node",
    "sequence sharding traded for data parallelism", "asynchronous all-gather hidden behind compute", "h100 mixtral",
    "which change ran out of memory", "fp8 instead of bf16", "wider model axis slower", "gradient accumulation batch",
    "FSDP instead of tensor parallelism on 512 chips", "deepseek mixture of experts on gb200", "remat minimal v5p",
    "slower after changing the mesh", "qwen on v6e bound by HBM bandwidth", "compile error with pipeline stages",
)  # fmt: skip


def records(count: int) -> list[Any]:
    """Values of as many records, in the order in which sweeps would bring them."""
    from history.record import FAILURES, Record, Side, outcome_of

    random = np.random.default_rng(SEED)

    def pick(values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    def mesh(chips: int) -> dict[str, dict[str, int]]:
        sizes = {"data": 1, "fsdp": 1, "seq": 1, "model": 1}
        for _ in range(int(np.log2(chips))):
            sizes[pick(list(sizes))] *= 2
        return {"ici": sizes, "dcn": {}}

    workloads = []
    for _ in range(300):
        chip = pick(list(CHIPS))
        workloads.append((chip, pick(CHIPS[chip]), pick(MODELS), random.choice(["communication", "memory", "compute"])))
    made = []
    for number in range(count):
        chip, chips, model, bottleneck = workloads[min(299, int(random.exponential(60)))]
        changes = pick(KINDS)
        before, after = mesh(chips), mesh(chips)
        failed = random.random() < 0.08
        speedup = None if failed else float(np.exp(random.normal(0.03, 0.12)))
        moved = ", ".join(f"{axis} {size} → {after['ici'][axis]}" for axis, size in before["ici"].items())
        made.append(
            Record(
                id=f"sweep-{number}",
                title=f"{model} on {chip}-{chips}: {' and '.join(changes).replace('_', ' ')} changed",
                change=moved,
                changes=changes,
                before=Side("before", before, {}, {"global_batch": 512, "seq_len": 8192}, {"step_time_s": 3.2}),
                after=Side("after", after if "mesh" in changes else before, {}, {"global_batch": 512, "seq_len": 8192},
                           {} if failed else {"step_time_s": 3.2 / (speedup or 1), "mfu": 0.41}),
                outcome="failed" if failed else outcome_of(speedup or 1),
                failure=pick(FAILURES) if failed else "",
                source=f"sweep {number // 400}",
                provenance="imported",
                chip=chip,
                chips=chips,
                model_name=model,
                bottleneck=str(bottleneck),
                parameters=SIZES[MODELS.index(model)],
                speedup=speedup,
                measure="" if failed else "step time",
            )
        )  # fmt: skip
    return made


def fill(count: int) -> tuple[Any, float]:
    """(the team, seconds that importing took without vectors); every record then has a vector."""
    from accounts.models import Team
    from history.services import seed

    seed()
    team, other = Team.objects.create(name="Sweeps"), Team.objects.create(name="Others")
    return team, write([(team, count), (other, count // 10)])


def write(counts: list[tuple[Any, int]]) -> float:
    """As many records for each team, with vectors; seconds that importing the first team's took without."""
    from django.db import connection

    from history.models import HistoryRecord
    from history.services.store import add_many, to_row
    from knowledge.embedding.minilm import NAME, embed

    values = records(sum(count for _, count in counts))
    described = [to_row(value, counts[0][0]).embedding_text() for value in values[:600]]
    vectors = embed(described)
    index = next(one for one in HistoryRecord._meta.indexes if one.name.endswith("hnsw_minilm"))
    with connection.schema_editor() as editor:
        editor.remove_index(HistoryRecord, index)  # made at the end, as it is faster
    done, took = 0, []
    for team, count in counts:
        began = time.perf_counter()
        for start in range(done, done + count, 500):
            add_many(values[start : min(start + 500, done + count)], team, None)
        took.append(time.perf_counter() - began)
        done += count
    random = np.random.default_rng(SEED)
    with connection.cursor() as cursor:
        cursor.execute("create temporary table vector_of (id bigint, v halfvec)")
        pks = list(HistoryRecord.objects.values_list("pk", flat=True))
        with cursor.copy("copy vector_of (id, v) from stdin") as copy:
            for pk in pks:
                members = random.choice(len(vectors), size=3, replace=False)
                vector = random.dirichlet(np.ones(3)) @ vectors[members] + random.normal(0, 0.015, vectors.shape[1])
                vector /= np.linalg.norm(vector)
                copy.write_row((pk, "[" + ",".join(f"{x:.4f}" for x in vector) + "]"))
        cursor.execute(
            "update history_historyrecord r set embedding = v, embedding_model = %s, embedding_dimension = %s, "
            "embedded_hash = content_hash from vector_of o where o.id = r.id",
            [NAME, len(vectors[0])],
        )
        cursor.execute("set maintenance_work_mem = '512MB'")
    with connection.schema_editor() as editor:
        editor.add_index(HistoryRecord, index)
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze history_historyrecord")
    return took[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Pages and searches of the history with many records.")
    parser.add_argument("--records", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args(arguments)
    os.environ["ASAP_LOG_LEVEL"] = "ERROR"
    with database():
        from history.case import Case
        from history.models import HistoryRecord
        from history.services.search import filtered, page
        from history.services.similar import similar
        from proposals.services.precedents import of_run

        team, filled_s = fill(options.records)
        print(
            f"{HistoryRecord.objects.count():,} records; "
            f"{options.records:,} were stored in {filled_s:.0f} s ({filled_s / options.records * 1e3:.2f} ms each)"
        )
        middle = options.records // 50
        cases: dict[str, list[dict[str, Any]]] = {
            "first page": [{}, {"sort": "effect"}, {"sort": "worst"}],
            "a page in the middle": [{"page": middle}, {"sort": "effect", "page": middle}],
            "one facet": [
                *({"chip": [chip]} for chip in CHIPS),
                *({"bottleneck": [b], "sort": "effect"} for b in ("memory", "compute", "input")),
                {"chips_min": 9, "chips_max": 64}, {"outcome": ["failed"]}, {"change": ["remat"]},
            ],
            "three facets": [
                {"chip": [chip], "bottleneck": ["communication"], "outcome": ["faster", "slower"], "sort": sort}
                for chip in CHIPS for sort in ("newest", "effect")
            ],
            "rare": [{"model": ["kimi-k2"], "chip": ["v4"]}, {"provenance": ["published"], "sort": "effect"}],
            "words and meaning": [{"q": q} for q in QUERIES],
            "words and meaning, one facet": [
                {"q": q, "chip": [chip]} for q, chip in zip(QUERIES, 2 * list(CHIPS), strict=False)
            ],
        }  # fmt: skip
        print(f"{'':34}{'median':>12}{'p95':>12}{'processor':>12}{'p95':>12}")
        print(f"a page; aim {AIM_PAGE_S * 1e3:.0f} ms")
        for name, asked in cases.items():
            took = timed(asked * options.rounds, lambda one: page(filtered(team, one), one.get("page", 1)))
            print(f"  {name:32}{took}", flush=True)
        some = list(HistoryRecord.objects.filter(team=team).order_by("?")[:12])
        case = Case(
            chip="v5e", chips=256, parameters=8e9, batch=512, seq_len=8192, bottleneck="communication",
            move={"data": 1.0, "model": -1.0, "micro_batch": -1.0},
        )  # fmt: skip
        print(f"what is like; aim {AIM_RETRIEVAL_S * 1e3:.0f} ms")
        print(f"  {'similar to a record':32}{timed(some * options.rounds, lambda record: similar(team, record))}")
        print(f"  {'similar to a case':32}{timed([case] * 4 * options.rounds, lambda one: similar(team, one))}")
        runs = [
            Case(chip, sizes[0], parameters=8e9, batch=512, seq_len=8192, bottleneck="communication")
            for chip, sizes in CHIPS.items()
        ]
        print(f"  {'records for a proposal':32}{timed(runs * options.rounds, lambda ran: of_run(team.pk, ran))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
