"""Programs that the TPU compiler scheduled, as landscapes: `python -m evaluation.campaigns.compiled_programs` compiles.

The models of LANDSCAPES are dense; of each the meshes, remat policies, weight shardings and numbers of micro-batches
that the rules of legality allow, without those that the memory model puts ABOVE the chip's memory, and of these
PER_LANDSCAPE, drawn with a fixed seed.  AFTERWARDS are more models, to check the memory model with.

A program's price is what the compiler estimates of its instructions, as often as they run, and its collectives at the
bandwidth of their links.  Nothing overlaps: at quick effort the compiler schedules collectives by themselves.  It is
the compiler's step time, not a chip's; the performance model has no part in it but the bandwidth of links.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from io import BytesIO
from itertools import chain, product, zip_longest
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.backends.compiled import log_of
from diagnosis.analyzer.links import ideal_time_s, mesh_links
from evaluation.campaigns.landscape import listed
from evaluation.campaigns.recorded import Recorded
from evaluation.compiled import WORKLOADS, Workload, compiled_row
from experiments.hlo.program import Program
from formatting.numbers import whole_number
from perfmodel import legality
from perfmodel.catalogue import get_model
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config
from proposals.compiling import engine, predicted
from proposals.compiling.result import CollectiveUse, CompileCheck
from proposals.failures import Failure, read_failure

DATA = Path(__file__).parents[1] / "data" / "compiled" / "programs.jsonl"
PER_LANDSCAPE, PER_AFTERWARDS = 25, 12
LANDSCAPES = tuple(workload for workload in WORKLOADS if not get_model(workload.model).experts)
#: Compiled when terms of the memory model had been chosen, the last two when the last of them had been.
AFTERWARDS = (
    Workload("llama3.2-3b", "v5e", (4, 8), 64, 4096),
    Workload("qwen3-8b", "v6e", (4, 8), 64, 4096),
    Workload("mistral-7b", "v5e", (8, 8), 128, 4096),
    Workload("gemma3-4b", "v6e", (8, 16), 128, 8192),
)
#: Predicted over usable memory above which a program is not compiled: nearly all of them would be failures.
ABOVE = 1.2
#: Hz, from peak FLOP/s by the MXUs and their size: 4 of 128 × 128, 8 of 128 × 128, 4 of 256 × 256 (scaling book 2).
CLOCKS = {"v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9}
#: What the compiler says of instructions that it has no estimate of.
NO_ESTIMATE = 2**62


def space(workload: Workload) -> list[dict[str, Any]]:
    """Legal configurations of a dense model, in a fixed order."""
    chips, rows = prod(workload.topology), []
    powers = [2**n for n in range(5) if chips % 2**n == 0]
    for replica, seq, model in product((1, 2, 4), powers, powers):
        if chips % (replica * seq * model):
            continue
        sizes = {"replica": replica, "data": chips // (replica * seq * model), "seq": seq, "model": model}
        mesh = {axis: size for axis, size in sizes.items() if size > 1 or axis == "data"}
        for remat, sharding, accumulate in product(("full", "minimal", "none"), ("fsdp", "zero1"), (1, 2, 4)):
            row = workload.configuration(mesh, remat, sharding, accumulate)
            config = parse_config(row)[0]
            most = ABOVE * get_chip(workload.chip).hbm_usable_bytes
            needed = predicted.memory_bytes(config)
            if needed is not None and needed <= most and not _illegal(config):
                rows.append(row)
    return rows


def _illegal(config: ExperimentConfig) -> bool:
    return any(violation.rule != "memory" for violation in legality.check(config))


def drawn(workload: Workload) -> list[dict[str, Any]]:
    """The whole space in the order in which it is compiled."""
    rows = space(workload)
    random.Random(f"landscape {workload.name}").shuffle(rows)
    return rows


def _compute_cycles(program: Program) -> int:
    """Estimated cycles of a run of the program without its collectives.  Of a fusion its own estimate counts, not that
    of what is in it."""
    total = 0
    for computation, line, times in program.lines():
        if computation in program.fused or '"estimated_cycles":"' not in line.text:
            continue
        digits, _, _ = line.text.partition('"estimated_cycles":"')[2].partition('"')
        if (cycles := whole_number(digits, digits=30)) is not None and cycles < NO_ESTIMATE:
            total += times * cycles
    return total


def collectives_s(config: ExperimentConfig, uses: Sequence[Sequence[Any]]) -> float:
    """uses: kind, axes, payload in bytes, times."""
    total = 0.0
    for kind, axes, payload, times in uses:
        found = mesh_links(config.hardware, config.mesh, tuple(axes))
        if found is not None:
            total += times * ideal_time_s(kind, payload, found.links)
    return total


def step_time_s(row: dict[str, Any]) -> float:
    """Price of a program, s; nan where it does not fit."""
    if row["outcome"] != "fits":
        return float("nan")
    config = parse_config(row["config"])[0]
    return float(row["cycles"] / CLOCKS[config.hardware.chip] + collectives_s(config, row["collectives"]))


@lru_cache(maxsize=1)
def rows(path: Path = DATA) -> tuple[dict[str, Any], ...]:
    """As those of `evaluation.compiled`, with `cycles` and `collectives`."""
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()


@cache
def landscapes() -> tuple[Recorded, ...]:
    """What is out of memory failed, as a log of XLA says it."""
    return tuple(_landscape(workload.name) for workload in LANDSCAPES)


def _landscape(name: str) -> Recorded:
    of_it = [row for row in rows() if row["config"]["name"] == name]
    configs = [parse_config(row["config"])[0] for row in of_it]
    failures = tuple(_failure(row, config) for row, config in zip(of_it, configs, strict=True))
    times = np.array([step_time_s(row) for row in of_it])
    peaks = np.array([row["peak_bytes"] or np.nan for row in of_it])
    return Recorded(name, "compiled", listed(configs), times, peaks, failures, elsewhere=True)


def _failure(row: dict[str, Any], config: ExperimentConfig) -> Failure | None:
    """Read from what a trial of the compiler backend writes that ended so."""
    if row["outcome"] == "fits":
        return None
    check = CompileCheck(
        row["outcome"], row["message"], needed_bytes=row["needed_bytes"], capacity_bytes=row["capacity_bytes"]
    )
    return read_failure(BytesIO(log_of(check).encode()), config)


def read_program(config: ExperimentConfig, text: str, uses: Sequence[CollectiveUse]) -> dict[str, Any]:
    """What is kept of a program's schedule beside its memory: `cycles`, `collectives` as `collectives_s` takes them."""
    counts: Counter[tuple[str, tuple[str, ...], float]] = Counter()
    for use in uses:
        counts[use.kind, use.axes, use.payload_bytes] += use.times
    kept = [[kind, list(axes), payload, times] for (kind, axes, payload), times in counts.items()]
    return {"cycles": _compute_cycles(Program.parse(text)), "collectives": kept}


def _left() -> Iterator[dict[str, Any]]:
    """What is not compiled yet, one workload after the other in turn.  A memory model of another day draws others, so
    that what is compiled counts whether it would be drawn or not."""
    known = [row["config"] for row in rows()]
    counts = Counter(config["name"] for config in known)

    def of(workload: Workload, count: int) -> list[dict[str, Any]]:
        return [config for config in drawn(workload) if config not in known][: max(0, count - counts[workload.name])]

    first = zip_longest(*(of(workload, PER_LANDSCAPE) for workload in LANDSCAPES))
    then = zip_longest(*(of(workload, PER_AFTERWARDS) for workload in AFTERWARDS))
    return (config for config in chain.from_iterable(chain(first, then)) if config is not None)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, DATA.open("a", encoding="utf-8") as file:
        for row in _left():
            config, hlo = parse_config(row)[0], Path(folder) / "hlo.txt"
            check = engine.check(config, hlo=hlo)
            if check.outcome == "not_installed":
                raise SystemExit(check.message)
            kept = compiled_row(row, check)
            if check.outcome == "fits":
                kept |= read_program(config, hlo.read_text(encoding="utf-8"), check.collectives)
            file.write(json.dumps(kept) + "\n")
            file.flush()
            print(config.name, row["mesh"]["ici"], check.outcome, kept["compile_s"], flush=True)


if __name__ == "__main__":
    main()
