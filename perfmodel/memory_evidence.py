"""Memory by evidence: completed runs, their peaks and failures for want of memory tell of other configurations.

Start with `memory_posterior`.  Weights, gradients and optimizer state are what the shape says; activations and buffers
are off by a factor that all configurations of a workload share.  A measured peak fixes it, a run that ran bounds it
from above, one that ran out of memory from below.  Every memory verdict of the product comes from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.memory import MemoryUse
from perfmodel.special import log_normal_cdf
from perfmodel.topology import Floats

#: Variance of log(needed / capacity) that configurations have in common, as a share; the rest is each one's own.
COMMON = 0.5
#: Standard deviation of the logarithm of the common factor once a peak was measured: an allocator keeps a little more
#: than it needs.
PEAK_SPREAD = 0.1
#: Where less than this share of a measured peak is left for activations, some states are offloaded.
LEAST_ACTIVATIONS = 0.02
#: A run that ran although the model expects so many times the capacity is not the one configured: it corrects nothing.
IMPLAUSIBLE = 1.6
#: The common factor, as a logarithm, in standard deviations.
_GRID = np.linspace(-3.5, 3.5, 15)
_STATES = ("params", "optimizer", "gradients")
_ACTIVATIONS = ("activations", "spared", "sparable", "held", "wanted", "runtime")


@dataclass(frozen=True)
class MemoryRun:
    """A run whose memory tells something.  used: as computed, one candidate.  peak_bytes: measured, None if it was not.
    ran_out: probability that it ran out of memory, 0 for one that ran, None where a failure has no known cause."""

    used: MemoryUse
    peak_bytes: float | None = None
    ran_out: float | None = 0.0


@dataclass(frozen=True)
class MemoryPosterior:
    """Factors and weights that correct the computed memory of a workload.

    states, activations: factors on what is computed; spread: standard deviation of the logarithm of the common factor
    around them, in units of a candidate's `crash_spread` where no peak was measured (`has_peak`); weights: of the grid.
    ran: runs that ran, corrected.
    """

    states: float = 1.0
    activations: float = 1.0
    has_peak: bool = False
    weights: tuple[float, ...] = ()
    ran: tuple[MemoryUse, ...] = ()

    def corrected(self, used: MemoryUse) -> MemoryUse:
        """Return computed memory as the measured peak, or the mere fact that a run ran, corrects it."""
        if self.states == 1.0 and self.activations == 1.0:
            return used
        return replace(
            used,
            **{part: getattr(used, part) * self.states for part in _STATES},
            **{part: getattr(used, part) * self.activations for part in _ACTIVATIONS},
        )

    def fits(self, used: MemoryUse) -> np.ndarray:
        """Return True where corrected memory `used` is within the capacity, or no larger than a run that ran in it."""
        return np.asarray(used.fits | self._no_larger(used))

    def probability_fits(self, used: MemoryUse) -> Floats:
        """Return the probability that corrected memory `used` suffices; 1 for what is no larger than a run that ran."""
        logs = _log_fits(used, self.has_peak)
        if self.ran:
            # Candidates err as the run did that is hardest to believe: given that it ran, only the rest is open.
            least = np.minimum.reduce([_log_fits(run, self.has_peak) for run in self.ran])
            logs = np.minimum(0.0, logs - least)
        weights = np.array(self.weights) if self.weights else _prior()
        known = np.exp(logs) @ weights
        return np.where(self._no_larger(used), 1.0, known)

    def _no_larger(self, used: MemoryUse) -> np.ndarray:
        smaller = np.zeros(np.shape(used.total), dtype=bool)
        for run in self.ran:
            # To a rounding error: the run itself is no larger than it is.
            states = _states(used) <= 1.000001 * _states(run)
            room = used.capacity >= 0.999999 * run.capacity  # another chip may have less of it
            smaller = smaller | (states & room & (used.needed <= 1.000001 * run.needed))
        return smaller


def memory_posterior(runs: Sequence[MemoryRun]) -> MemoryPosterior:
    """Return the posterior from the runs of one workload; without any, the model alone."""
    if not runs:
        return MemoryPosterior()
    states, activations, has_peak = _factors(runs)
    plain = MemoryPosterior(states, activations, has_peak)
    ran = tuple(plain.corrected(run.used) for run in runs if run.ran_out == 0.0)
    log_weight = np.log(_prior())
    for run in runs:
        log_fits = np.minimum(_log_fits(plain.corrected(run.used), has_peak)[0], -1e-12)
        log_short = np.log(-np.expm1(log_fits))
        if run.ran_out is None:
            continue  # what failed for no known cause says nothing
        log_weight = log_weight + (1.0 - run.ran_out) * log_fits + run.ran_out * log_short
    weight = np.exp(log_weight - log_weight.max())
    return replace(plain, weights=tuple(weight / weight.sum()), ran=ran)


def _factors(runs: Sequence[MemoryRun]) -> tuple[float, float, bool]:
    """Return the factors on states and activations that give every peak measured, or make every completed run fit."""
    measured = [run for run in runs if run.peak_bytes]
    told: list[tuple[float, float]] = []
    for run in measured or [run for run in runs if run.ran_out == 0.0]:
        states, total = float(_states(run.used)[0]), float(run.used.total[0])
        capacity = float(run.used.capacity[0])
        peak = float(run.peak_bytes) if run.peak_bytes else min(total, capacity)
        if peak == total or (not run.peak_bytes and total > IMPLAUSIBLE * capacity):
            continue
        beyond = peak - states
        if beyond > LEAST_ACTIVATIONS * peak:
            told.append((0.0, float(np.log(beyond / run.used.activations[0]))))
        else:  # not even the states fit into it: some are offloaded, or kept in fewer bits
            told.append((float(np.log(peak / total)),) * 2)
    if not told:
        return 1.0, 1.0, bool(measured)
    if measured:
        states_log, activations_log = np.mean(told, axis=0)
    else:
        states_log, activations_log = np.min(told, axis=0)
    return float(np.exp(states_log)), float(np.exp(activations_log)), bool(measured)


def _prior() -> Floats:
    weight = np.exp(-0.5 * _GRID**2)
    return np.asarray(weight / weight.sum())


def _states(used: MemoryUse) -> Floats:
    return used.params + used.optimizer + used.gradients


def _log_fits(used: MemoryUse, has_peak: bool) -> Floats:
    """Return the logarithm of the probability that memory suffices by the common factor: (candidates, grid)."""
    own = used.crash_spread * np.sqrt(1.0 - COMMON)
    # Activations are part of what is needed, so that a factor on them moves it less than in proportion.
    common = np.where(has_peak, PEAK_SPREAD, 1.4 * used.crash_spread * np.sqrt(COMMON))
    shape = np.broadcast_shapes(*(np.shape(value) for value in (used.needed, used.capacity, used.crash_spread)))
    states, needed, capacity, own, common = (
        np.broadcast_to(value, shape)[..., None] for value in (_states(used), used.needed, used.capacity, own, common)
    )
    moved = states + (needed - states) * np.exp(common * _GRID)
    return np.asarray(log_normal_cdf(np.log(capacity / moved) / own))
