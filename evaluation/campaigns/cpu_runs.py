"""Real runs of a small model on eight CPU devices, a landscape: `python -m evaluation.campaigns.cpu_runs` records it.

The reference step of a decoder with 1.6 M parameters in CONFIGS configurations that the rules of legality allow, drawn
from meshes, micro-batches, recomputation and weight sharding.  Each is compiled once; then ROUNDS rounds go through all
of them in an order of their own, so that what else the machine does falls on all alike.  Every timed step is kept.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.campaigns.landscape import listed, read_landscape
from evaluation.campaigns.recorded import Recorded
from perfmodel import legality
from perfmodel.config_file import parse_config
from proposals.candidate import Candidate, candidate

FILE = Path(__file__).parents[1] / "data" / "campaigns" / "cpu_runs.json"
CONFIGS, DEVICES = 64, 8
#: Of each round the first step is not kept.
ROUNDS, STEPS = 4, 3
CONFIG: dict[str, Any] = {
    "name": "small decoder on 8 CPU devices",
    "hardware": {"chip": "v6e", "topology": [2, 4]},
    "mesh": {"ici": {"replica": 1, "data": 8, "seq": 1, "model": 1}},
    "model": {
        "layers": 2, "d_model": 256, "d_ff": 512, "heads": 8, "kv_heads": 8, "head_dim": 32, "vocab": 1024,
    },
    "training": {
        "global_batch": 16, "seq_len": 128, "precision": "bf16", "optimizer": "adamw", "weight_sharding": "fsdp",
        "remat": "full", "grad_accum": 1,
    },
}  # fmt: skip


def drawn() -> list[dict[str, Any]]:
    """Meshes and changes, what is configured first."""
    config, found = parse_config(CONFIG)[0], []
    sizes = (1, 2, 4, 8)
    for replica, seq, model in product(sizes, sizes, sizes):
        if DEVICES % (replica * seq * model):
            continue
        data = DEVICES // (replica * seq * model)
        mesh = {"ici": {"replica": replica, "data": data, "seq": seq, "model": model}}
        for remat, sharding, accumulate in product(("none", "minimal", "full"), ("none", "zero1", "fsdp"), (1, 2, 4)):
            changes = {"remat": remat, "weight_sharding": sharding, "grad_accum": accumulate}
            if not legality.check(candidate(config, Candidate(mesh, changes))):
                found.append({"mesh": mesh, "changes": changes})
    first = {"mesh": CONFIG["mesh"], "changes": {"remat": "full", "weight_sharding": "fsdp", "grad_accum": 1}}
    found.remove(first)
    return [first, *random.Random(0).sample(found, CONFIGS - 1)]


def landscape() -> Recorded:
    """The runs as a campaign is played on them: of the timed steps the fastest, which other work disturbed least."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    config = parse_config(data["config"])[0]
    read = read_landscape(config, data["runs"])
    times = np.array([min(outcome.step_times_s, default=np.nan) for outcome in read.outcomes])
    peaks = np.array([outcome.peak_bytes or np.nan for outcome in read.outcomes])
    return Recorded(config.name, "cpu", listed(read.configs), times, peaks, (None,) * len(times), elsewhere=True)


def run() -> Iterator[dict[str, Any]]:
    """Rows of a landscape; `step_times_s` in rounds of STEPS."""
    import jax

    from reference_step.layout import device_mesh
    from reference_step.step import build

    assert len(jax.devices()) == DEVICES
    config, rows = parse_config(CONFIG)[0], drawn()
    ready: dict[int, Any] = {}
    for number, row in enumerate(rows):
        each = candidate(config, Candidate(row["mesh"], row["changes"]))
        try:
            reference = build(each, device_mesh(each, jax.devices()))
            state, batch = reference.init(jax.random.key(0)), reference.batch(jax.random.key(1))
            compiled = reference.step.lower(state, batch).compile()
            ready[number] = (reference, batch, compiled)
            used = compiled.memory_analysis()
            row["peak_memory_bytes"] = int(
                used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
                - used.alias_size_in_bytes
            )  # fmt: skip
            row["step_times_s"] = []
        except Exception as error:  # a run that fails is a row of the landscape
            row["log"] = f"{type(error).__name__}: {error}"[:2000]
        print(number, row["mesh"]["ici"], row["changes"], row.get("log", ""), flush=True)
    for turn in range(ROUNDS):
        for number in random.Random(turn).sample(sorted(ready), len(ready)):
            reference, batch, compiled = ready[number]
            state = reference.init(jax.random.key(0))
            for step in range(1 + STEPS):
                begin = time.perf_counter()
                state, loss = compiled(state, batch)
                jax.block_until_ready((state, loss))
                if step:
                    rows[number]["step_times_s"].append(round(time.perf_counter() - begin, 5))
        print("round", turn, flush=True)
    yield from rows


def main() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax

    rows = list(run())
    data = {
        "config": CONFIG,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__}, Python {sys.version_info[0]}."
        f"{sys.version_info[1]}; other work beside it",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "steps_per_round": STEPS,
    }
    runs = ",\n".join(json.dumps(row) for row in rows)
    FILE.write_text(json.dumps(data)[:-1] + f', "runs": [\n{runs}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
