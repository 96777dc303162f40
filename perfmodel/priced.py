"""What the model makes of the terms of steps under efficiencies: the estimate, its parts, the bounds and the range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfmodel.efficiency import CLASSES, Efficiencies
from perfmodel.terms import Terms
from perfmodel.topology import Floats

#: Two-sided 80 % of a normal distribution.  The bounds are to hold where its tails are heavier.
Z80 = 1.2816
ZBOUND = 2.5
#: Share of measurements on either side of the 80 % interval.
TAIL = 0.1


@dataclass(frozen=True)
class Priced:
    """Times of many candidates in seconds; arrays of one broadcast shape.  What only a page shows, the bounds and the
    range, is computed where it is asked for: a proposal prices its candidates at dozens of efficiencies.

    parts_s: parts of the estimate, which they add up to: compute, hbm, ici:<group>, dcn, bubble, overhead.
    hbm_s: time of HBM, hidden or not; links_s: of the links, likewise, by ici:<group> and dcn.
    resources_s: the breakdown behind the bounds: compute (at best, no less than the model
    FLOPs at peak), hbm, ici:<group>, dcn, bubble, overhead.
    lower is the largest of compute, hbm, each ici group and dcn; upper is the sum of all.  smooth_s: the step where
    nothing stalls, stall_s: what a slow host adds, stall_chance: how likely there is one.  hardware_flops_s: time of
    all FLOPs executed, recomputed ones included, at peak.
    """

    terms: Terms
    efficiencies: Efficiencies
    estimate_s: Floats
    parts_s: Mapping[str, Floats]
    hbm_s: Floats
    links_s: Mapping[str, Floats]
    exposed_comms_s: Floats
    smooth_s: Floats
    stall_s: Floats
    stall_chance: Floats
    hardware_flops_s: Floats

    @cached_property
    def resources_s(self) -> Mapping[str, Floats]:
        t = self.terms
        at_peak = t.dense_s + t.experts_s + t.scores_s + t.head_s
        compute = np.maximum(self.parts_s["compute"] * self._best, np.minimum(at_peak, self.estimate_s))
        resources = {"compute": compute, "hbm": self.hbm_s, **self.links_s, "bubble": self.parts_s["bubble"]}
        overhead = self.parts_s["overhead"]
        summed = sum(resources.values(), np.zeros(1)) + overhead
        # Gaps no resource explains, as far as the fit has seen them, and no longer than the step, stalled or not.
        unexplained = np.maximum(0.0, np.maximum(self.estimate_s / self._best, self._interval[1]) - summed)
        return resources | {
            "overhead": np.minimum(overhead + unexplained, np.maximum(overhead, self.estimate_s + self.stall_s))
        }

    @cached_property
    def lower_s(self) -> Floats:
        overlappable = [value for name, value in self.resources_s.items() if name not in ("bubble", "overhead")]
        lower: Floats = np.maximum.reduce(np.broadcast_arrays(*overlappable))
        return lower

    @cached_property
    def upper_s(self) -> Floats:
        return sum(self.resources_s.values(), np.zeros(1))

    @property
    def low80_s(self) -> Floats:
        return np.minimum(np.maximum(self.lower_s, self._interval[0]), self.estimate_s)

    @property
    def high80_s(self) -> Floats:
        return np.minimum(self.upper_s, np.maximum(self._interval[1], self.estimate_s))

    @cached_property
    def _best(self) -> Floats:
        """Of the compute: its time at best over the estimated one."""
        low80, high80 = _range(self.terms, self.efficiencies)
        best: Floats = np.exp(-ZBOUND / Z80 * np.maximum(-low80, high80))
        return best

    @cached_property
    def _interval(self) -> tuple[Floats, Floats]:
        """Ends of the 80 % interval, as the fit has them.  Where it may stall or not, it holds both."""
        low80, high80 = _range(self.terms, self.efficiencies)
        smooth, stalled, chance = self.smooth_s, self.smooth_s + self.stall_s, self.stall_chance
        low = np.where(chance < 1.0 - TAIL, smooth, stalled) * np.exp(low80)
        high = np.where(chance > TAIL, stalled, smooth) * np.exp(high80)
        return low, high


def _range(t: Terms, e: Efficiencies) -> tuple[Floats, Floats]:
    """Logarithms of the ends of the 80 % interval over the estimate."""

    def chosen(side: str) -> Floats:
        plain, pipelined, mixture = (np.asarray(getattr(e, f"{side}80_{name}")) for name in CLASSES)
        return np.where(t.experts_s > 0, mixture, np.where(t.stages > 1, pipelined, plain))

    return chosen("low"), chosen("high")
