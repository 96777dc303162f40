"""Bottleneck analysis of the pool: how healthy the best trial is, and which parameters are worth moving.

Health states and what they ask for are OptiCo's (seed 003, D.2), on quantities that a trial measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import Pool, Trial
from experiments.sentences import Sentence, Value, say
from perfmodel.roofline import mfu

Floats = npt.NDArray[np.float64]

#: OptiCo's thresholds: share of the step that the chip is busy, share of its memory, MFU.
IDLE, ROOMY, POOR_MFU, FULL = 0.5, 0.7, 0.5, 0.95
HealthState = Literal[
    "unknown", "severely underutilised", "high pipeline overhead", "memory bound", "performance tuning"
]
#: Columns of `Candidates.settings`, by what a reader calls them.
COLUMNS = {
    "tensor axis": (0,), "pipeline": (1,), "sequence axis": (2,), "expert axis": (3,), "replica axis": (4,),
    "micro-batch": (5,), "global batch": (6,), "virtual stages": (7,), "weight sharding": (8, 9),
    "rematerialisation": (10, 11, 12),
}  # fmt: skip


@dataclass(frozen=True)
class Health:
    """State of the best trial, and in a sentence what it asks for."""

    state: HealthState
    sentence: Sentence


@dataclass(frozen=True)
class ParameterGain:
    """A parameter, and the largest expected improvement (share of the time) among candidates that change it."""

    parameter: str
    gain: float


@dataclass(frozen=True)
class Analysis:
    """best: the fastest trial so far, None where none ran.  leverage: the parameters, most promising first."""

    best: Trial | None
    health: Health
    leverage: tuple[ParameterGain, ...]


def analyse(c: Candidates, pool: Pool, gain: Floats) -> Analysis:
    """gain: expected improvement of every candidate, in log time; 0 where it may not be tried."""
    best = fastest(c, pool)
    return Analysis(best, _health(c, best), _leverage(c, best, gain))


def fastest(c: Candidates, pool: Pool) -> Trial | None:
    """By time per token."""
    return min(pool.done, key=lambda trial: (trial.step_time_s or 0.0) / c.tokens[trial.candidate], default=None)


def mfu_of(c: Candidates, row: int, step_time_s: float | None) -> float | None:
    """MFU of a candidate in its training precision; None where it did not run."""
    return mfu(c.configs[row], step_time_s, c.configs[row].training.precision)


def _health(c: Candidates, best: Trial | None) -> Health:
    if best is None:
        return Health("unknown", Sentence("No trial has a result yet."))
    utilization = mfu_of(c, best.candidate, best.step_time_s)
    stages = 2.0 ** c.settings[best.candidate, COLUMNS["pipeline"][0]]
    memory = best.peak_bytes / c.used.capacity[best.candidate] if best.peak_bytes else None
    used = Value("memory in use", memory, "share", best.origin) if memory is not None else None
    if best.duty_cycle is not None and memory is not None and best.duty_cycle < IDLE and memory < ROOMY:
        busy = Value("duty cycle", best.duty_cycle, "share", "measured")
        text = "The chips are busy {} of the step and use {} of their memory: use less parallelism per model replica."
        return Health("severely underutilised", say(text, busy, used))
    if stages > 1 and utilization is not None and utilization < POOR_MFU:
        text = "{} pipeline stages at an MFU of {}: use fewer stages, or more micro-batches to fill them."
        depth = Value("pipeline stages", float(stages), "count", "sourced")
        return Health("high pipeline overhead", say(text, depth, Value("MFU", utilization, "share", best.origin)))
    if memory is not None and memory > FULL:
        return Health("memory bound", say("{} of the memory is in use: recompute more, or shard more.", used))
    return Health("performance tuning", Sentence("No bottleneck stands out: trials go by expected improvement."))


def _leverage(c: Candidates, best: Trial | None, gain: Floats) -> tuple[ParameterGain, ...]:
    if best is None or not len(c):
        return ()
    leverage = []
    for name, columns in COLUMNS.items():
        moved = (c.settings[:, columns] != c.settings[best.candidate, columns]).any(axis=1)
        if moved.any() and (most := float(gain[moved].max())) > 0:
            leverage.append(ParameterGain(name, 1.0 - float(np.exp(-most))))
    return tuple(sorted(leverage, key=lambda item: -item.gain))
