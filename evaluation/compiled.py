"""What the TPU compiler says of many configurations: `python -m evaluation.compiled [--limit N]` goes on where it was.

Each workload is a model on a slice with a batch; its configurations differ in mesh, recomputation and sharding.  They
are compiled one at a time at quick effort, workloads and settings in turn, and appended to
`evaluation/data/compiled/checks.jsonl`.  Needs libtpu (docs/compile-check.md).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import islice, product, zip_longest
from math import prod
from pathlib import Path
from typing import Any

from perfmodel import legality
from perfmodel.catalogue import get_model
from perfmodel.config_file import parse_config
from proposals.compiling import collectives, engine
from proposals.compiling.result import CompileCheck

DATA = Path(__file__).parent / "data" / "compiled" / "checks.jsonl"
#: Configurations per workload: enough for a landscape, few enough to compile in an afternoon.
PER_WORKLOAD = 18


@dataclass(frozen=True)
class Workload:
    model: str
    chip: str
    topology: tuple[int, ...]
    global_batch: int
    seq_len: int

    @property
    def name(self) -> str:
        return f"{self.model} on {self.chip} {'x'.join(map(str, self.topology))}"

    def configuration(self, mesh: dict[str, int], remat: str, sharding: str, grad_accum: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "hardware": {"chip": self.chip, "topology": list(self.topology)},
            "mesh": {"ici": mesh},
            "model": {"name": self.model},
            "training": {
                "global_batch": self.global_batch, "seq_len": self.seq_len, "precision": "bf16", "optimizer": "adamw",
                "weight_sharding": sharding, "remat": remat, "grad_accum": grad_accum,
            },
        }  # fmt: skip


WORKLOADS = (
    Workload("llama3.2-1b", "v6e", (4, 4), 64, 8192),
    Workload("llama3.1-8b", "v5e", (16, 16), 256, 8192),
    Workload("mixtral-8x7b", "v5p", (4, 4, 4), 128, 4096),
    Workload("qwen3-30b-a3b", "v6e", (8, 8), 128, 4096),
    Workload("qwen3-4b", "v5e", (8, 8), 128, 4096),
    Workload("gemma3-12b", "v5p", (2, 4, 4), 64, 8192),
    Workload("llama3.1-70b", "v5p", (4, 4, 8), 256, 4096),
    Workload("deepseek-v2-lite", "v6e", (4, 8), 64, 4096),
    Workload("qwen2.5-14b", "v6e", (8, 8), 64, 8192),
    Workload("llama3.1-8b", "v6e", (4, 4), 32, 8192),
    Workload("gpt-oss-20b", "v5e", (8, 8), 64, 4096),
    Workload("qwen2.5-1.5b", "v5e", (4, 4), 64, 2048),
)
#: Models whose many small experts take the compiler minutes.
SLOW = ("qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b")


def configurations(workload: Workload) -> list[dict[str, Any]]:
    """Legal configurations of a workload, drawn evenly over kinds of meshes with a fixed seed."""
    shape, chips = get_model(workload.model), prod(workload.topology)
    powers = [2**n for n in range(11) if chips % 2**n == 0]
    rows: list[dict[str, Any]] = []
    expert_sizes = powers if shape.experts else [1]
    for replica, seq, model, expert in product((1, 2, 4), powers, powers, expert_sizes):
        used = replica * seq * model * expert
        if chips % used or model > 16 or seq > 16:
            continue
        mesh = {"replica": replica, "data": chips // used, "expert": expert, "seq": seq, "model": model}
        mesh = {axis: size for axis, size in mesh.items() if size > 1 or axis == "data"}
        for remat, sharding, accumulate in product(("full", "minimal", "none"), ("fsdp", "zero1"), (1, 4)):
            config = workload.configuration(mesh, remat, sharding, accumulate)
            if all(violation.rule == "memory" for violation in legality.check(parse_config(config)[0])):
                rows.append(config)
    # Half of them as most people would run them: full recomputation, weights sharded, one micro-batch.
    random.Random(workload.name).shuffle(rows)
    usual = [c for c in rows if _usual(c)][: PER_WORKLOAD // 2]
    others = [c for c in rows if not _usual(c)][: PER_WORKLOAD - len(usual)]
    return [c for pair in zip_longest(usual, others) for c in pair if c is not None]


def _usual(config: dict[str, Any]) -> bool:
    training = config["training"]
    return (training["remat"], training["weight_sharding"], training["grad_accum"]) == ("full", "fsdp", 1)


def in_turn(done: Sequence[dict[str, Any]] = ()) -> Iterator[dict[str, Any]]:
    """All configurations but `done`, next always one of the workload that has the fewest, a slow one counted fourfold.

    Of a workload's, the one whose settings have been compiled least: any beginning covers all of them.
    """
    left = [config for workload in WORKLOADS for config in configurations(workload) if config not in done]
    compiled = Counter(config["name"] for config in done)
    seen = Counter(trait for config in done for trait in _traits(config))
    slow = {workload.name for workload in WORKLOADS if workload.model in SLOW}
    while left:
        turn = min(left, key=lambda c: (compiled[c["name"]] + 1) * (4 if c["name"] in slow else 1))["name"]
        config = min((c for c in left if c["name"] == turn), key=lambda c: sum(seen[trait] for trait in _traits(c)))
        left.remove(config)
        compiled[turn] += 1
        seen.update(_traits(config))
        yield config


def _traits(config: dict[str, Any]) -> list[tuple[str, Any]]:
    mesh, training = config["mesh"]["ici"], config["training"]
    axes = [(axis, mesh.get(axis, 1) > 1) for axis in ("replica", "seq", "model", "expert")]
    return [*axes, *((key, training[key]) for key in ("remat", "weight_sharding", "grad_accum"))]


@lru_cache(maxsize=1)
def rows(path: Path = DATA) -> tuple[dict[str, Any], ...]:
    """What has been compiled: `config`, `outcome`, `peak_bytes`, …, in the order in which it was."""
    if not path.exists():
        return ()
    return tuple(json.loads(line) for line in path.read_text().splitlines())


def compiled_row(config: dict[str, Any], check: CompileCheck) -> dict[str, Any]:
    """What is kept of a compilation."""
    kinds: dict[str, float] = {}
    for use in check.collectives:
        kinds[use.kind] = kinds.get(use.kind, 0.0) + use.sent_bytes
    return {
        "config": config,
        "outcome": check.outcome,
        "message": check.message,
        "peak_bytes": check.peak_bytes,
        "argument_bytes": check.argument_bytes,
        "needed_bytes": check.needed_bytes,
        "capacity_bytes": check.capacity_bytes,
        "sent_bytes_by_axes": {"+".join(k): round(v) for k, v in collectives.by_axis(check.collectives).items()},
        "sent_bytes_by_kind": {kind: round(sent) for kind, sent in kinds.items()},
        "effort": check.effort,
        "compile_s": round(check.compile_s or 0.0, 1),
        "versions": check.versions,
        "date": str(date.fromtimestamp(datetime.now(UTC).timestamp())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=10**6, help="stop after so many compilations")
    limit = parser.parse_args().limit
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("a") as file:
        for config in islice(in_turn([row["config"] for row in rows()]), limit):
            row = compiled_row(config, engine.check(parse_config(config)[0]))
            if row["outcome"] == "not_installed":
                raise SystemExit(row["message"])
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(config["name"], config["mesh"]["ici"], row["outcome"], row["compile_s"], flush=True)


if __name__ == "__main__":
    main()
