"""Prices of candidates under the evidence of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, reduce

import numpy as np

from perfmodel.memory import MemoryUse
from perfmodel.priced import Z80
from perfmodel.topology import Floats
from perfmodel.workload import Workload


@dataclass(frozen=True)
class Prices:
    """Candidates as arrays, in the order given.

    step_time_s: seconds (relative to a baseline of 1 where it had no step time).  sigma: the model's own standard
    deviation of log(time) relative to the baseline, 0 for the baseline alone; spread: the one for which 80 % of
    measurements lie within Z80 of it either way.  speedup: measured baseline time per token over the candidate's.
    parts_s: the candidate's parts by the names of the observation's; they add up to its step time.  at_peak_s: no step
    is shorter, whatever the efficiencies.  distance: from the baseline's mesh, in doublings.  used: memory per chip as
    the evidence corrects it.
    """

    step_time_s: Floats
    sigma: Floats
    spread: Floats
    speedup: Floats
    parts_s: Mapping[str, Floats]
    at_peak_s: Floats
    distance: Floats
    used: MemoryUse

    @cached_property
    def low80_s(self) -> Floats:
        return np.minimum(self.step_time_s, np.maximum(self.at_peak_s, self.step_time_s * np.exp(-Z80 * self.spread)))

    @cached_property
    def high80_s(self) -> Floats:
        return np.asarray(self.step_time_s * np.exp(Z80 * self.spread))

    @cached_property
    def lower_s(self) -> Floats:
        """Bound below: everything at its peak and at the same time."""
        return np.minimum(self.low80_s, self.at_peak_s)

    @cached_property
    def upper_s(self) -> Floats:
        """Bound above: as far beyond the interval as its upper end is from the estimate."""
        return np.asarray(self.high80_s**2 / self.step_time_s)


def same_training(workload: Workload, base: Workload) -> np.ndarray:
    """Whether every setting of the training, precision and states of the optimizer included, is that of `base`."""
    mine, theirs = workload.training, base.training
    pairs = [(getattr(mine, field.name), getattr(theirs, field.name)) for field in fields(mine)]
    # What neither says, such as the year of the software, is not a number on both sides.
    # Precisions of eight bits and fewer differ in the peak alone.
    pairs.append((workload.chip.peak, base.chip.peak))
    same: np.ndarray = reduce(np.logical_and, [(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in pairs])
    return same
