"""Event stores for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.trace import ASYNC, KINDS, OPS, Trace, TraceBuilder


def drawn(path: Path, seed: int, cores: int = 3, events: int = 400, steps: int = 2, nested: bool = False) -> Trace:
    """A store of random events, back to back with gaps; nested: with some inside others."""
    random = np.random.default_rng(seed)
    builder = TraceBuilder()
    names = [builder.name(f"op.{i}", KINDS[i % 6], program="jit_step") for i in range(20)]
    for index in range(cores):
        core = builder.add_core(f"TPU:{index}", "host-0")
        durations = random.integers(0, 5000, events) * random.integers(1, 50, events)
        gaps = random.integers(0, 800, events)
        starts = np.cumsum(durations + gaps) - durations
        ids = random.choice(names, events)
        builder.add_events(core, OPS, starts, durations, ids)
        if nested:
            builder.add_events(core, ASYNC, starts[::3], durations[::3] * 7, ids[::3])
        end = int(starts[-1] + durations[-1]) + 1
        edges = np.linspace(0, end, steps + 1).astype(np.int64)
        builder.add_steps(core, range(steps), edges[:-1], edges[1:])
    builder.write(path)
    return Trace(path)


def of(path: Path, rows: Sequence[tuple[int, int, str, str]]) -> Trace:
    """A store of one core: (start, duration, name, kind) of each event."""
    builder = TraceBuilder()
    core = builder.add_core("TPU:0", "host-0")
    ids = [builder.name(name, kind) for _, _, name, kind in rows]
    builder.add_events(core, OPS, [row[0] for row in rows], [row[1] for row in rows], ids)
    builder.write(path)
    return Trace(path)
