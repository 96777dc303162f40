"""Worlds in which trials have an outcome: the performance model's own times, slowed part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.loop import iterate
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.space import Space, searched
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config

Outcome = Callable[[int], Trial]

CONFIG: dict[str, Any] = {
    "name": "llama3.1-8b on 16 v6e",
    "hardware": {"chip": "v6e", "topology": [4, 4], "slices": 1},
    "mesh": {"ici": {"data": 4, "seq": 4, "model": 1}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 32, "seq_len": 8192, "remat": "full", "weight_sharding": "fsdp"},
}


def config(**training: Any) -> ExperimentConfig:
    return parse_config({**CONFIG, "training": {**CONFIG["training"], **training}})[0]


def space() -> Space:
    return searched(config())


def slowed(c: TrialCandidates, part: int, factor: float, capacity: float = 1.0) -> Outcome:
    """Where one part of every step takes `factor` times what the model says, and memory ends at a share of what the
    model takes for full."""

    def outcome(candidate: int) -> Trial:
        if c.fill[candidate] > np.log(capacity):
            return Trial(candidate, "failed")
        share = c.shares[candidate, part]
        return Trial(candidate, "done", float(c.time_s[candidate] * (1.0 + (factor - 1.0) * share)))

    return outcome


def played(c: TrialCandidates, outcome: Outcome, start: int, budget: int, **options: Any) -> Pool:
    """A campaign to its end."""
    pool = Pool((outcome(start),))
    for _ in range(budget):
        found = iterate(c, pool, **options)
        if not found.choices:
            break
        pool = pool.with_(outcome(found.choices[0].candidate))
    return pool
