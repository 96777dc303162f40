"""Prices of candidates relative to a measured baseline, what a profile taught, and how far a candidate is from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from perfmodel.config import Mesh, doublings, doublings_moved, flat_sizes
from perfmodel.topology import Floats
from perfmodel.workload import Workload


@dataclass(frozen=True)
class CalibratedPrices:
    """Candidates as arrays, in the order given.

    step_time_s, low80_s, high80_s: seconds (relative to a baseline of 1 where it had no step time).  speedup: measured
    baseline time per token over the candidate's; speedup_low80 and _high80 its range.  sigma: standard deviation of
    log(time).  probability_faster: that time per token falls.  parts_s: the candidate's parts by the names of the
    observation's.  memory_low_bytes and _high_bytes: between all of the peak being state and all being activations;
    None where no peak was measured.  distance: halvings and doublings of axes away from the baseline.
    """

    step_time_s: Floats
    low80_s: Floats
    high80_s: Floats
    sigma: Floats
    speedup: Floats
    speedup_low80: Floats
    speedup_high80: Floats
    probability_faster: Floats
    parts_s: Mapping[str, Floats]
    distance: Floats
    memory_low_bytes: Floats | None
    memory_high_bytes: Floats | None


@dataclass(frozen=True)
class Learnt:
    """What the profile says of one efficiency or factor: the fit's value with its spread between programs (of the
    logarithm, or of the log-odds), and the same with the profile."""

    name: str
    prior: float
    posterior: float
    prior_spread: float
    posterior_spread: float


def mesh_distance(old: Mesh, new: Mesh) -> float:
    """Factors of two moved between the axes of two meshes."""
    return doublings_moved(doublings(flat_sizes(old.to_json()), flat_sizes(new.to_json())))


def same_training(workload: Workload, base: Workload) -> np.ndarray:
    """Whether every setting of the training, precision and states of the optimizer included, is that of `base`."""
    mine, theirs = workload.training, base.training
    pairs = [(getattr(mine, field.name), getattr(theirs, field.name)) for field in fields(mine)]
    # What neither says, such as the year of the software, is not a number on both sides.
    # Precisions of eight bits and fewer differ in the peak alone.
    pairs.append((workload.chip.peak, base.chip.peak))
    same: np.ndarray = reduce(np.logical_and, [(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in pairs])
    return same
