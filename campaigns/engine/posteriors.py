"""What the pool makes of every candidate: its time per token, whether it stalls, and whether it runs at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.residuals import MOST_LEARNT, VarianceComponents, learn
from perfmodel.arrays import normal_cdf
from proposals.failures.failure import OF_CONFIGURATION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Share of the memory model's variance that all candidates of a workload have in common.
COMMON_FILL = 0.5
#: Standard deviation of log(measured / predicted) of a peak as evidence of what a program cannot do without: an
#: allocator keeps more than it needs.
PEAK_SPREAD = 0.2
#: Chance that a legal candidate fails for want of something other than memory, before any trial.
OTHER_FAILURES = 0.02
#: Trials that a prior chance of a stall is worth.
STALL_WEIGHT = 2.0
#: Open trials whose neighbourhood counts as explored: the latest.  Long campaigns plan hundreds ahead.
MOST_PENDING = 64
_BIAS = np.linspace(-0.6, 0.6, 61)


@dataclass(frozen=True)
class CandidatePosterior:
    """Arrays over candidates.

    mean, sd: of log seconds per token where nothing stalls; stall: chance that it does, and log factor it costs;
    fits: probability that memory suffices; runs: that the candidate runs.
    """

    mean: Floats
    sd: Floats
    stall: Floats
    stall_log: Floats
    fits: Floats
    runs: Floats


def posterior_of(
    c: Candidates, pool: Pool, division: VarianceComponents, *, learning: bool = True, analyse_failures: bool = True
) -> CandidatePosterior:
    """learning: whether measured times tell of the model's error; analyse_failures: whether a failure tells of other
    candidates."""
    recent = _taught(c, pool.done)
    done = recent if learning else ()
    rows = np.array([trial.candidate for trial in done], dtype=np.int64)
    measured = np.array([np.log((trial.step_time_s or np.nan) / c.tokens[trial.candidate]) for trial in done])
    smooth, stalled = measured - c.log_s[rows], measured - c.log_stalled_s[rows]
    slow = (c.stall_chance[rows] > 0) & (np.abs(stalled) < np.abs(smooth))
    pending = np.array([trial.candidate for trial in pool.open[-MOST_PENDING:]], dtype=np.int64)
    learnt = learn(c, rows, np.where(slow, stalled, smooth), division, pending)
    failed = pool.failed[-MOST_LEARNT:] if analyse_failures else ()
    fits, by_memory = _fits(c, recent, failed)
    return CandidatePosterior(
        mean=c.log_s + learnt.mean,
        sd=learnt.sd,
        stall=_stall(c, rows, slow, division),
        stall_log=c.log_stalled_s - c.log_s,
        fits=fits,
        runs=fits * (1.0 - _other_failures(c, recent, failed, by_memory, division)),
    )


def _taught(c: Candidates, done: Sequence[Trial]) -> Sequence[Trial]:
    if len(done) <= MOST_LEARNT:
        return done
    fastest = sorted(done, key=lambda trial: (trial.step_time_s or 0.0) / c.tokens[trial.candidate])[: MOST_LEARNT // 2]
    return list({id(trial): trial for trial in (*fastest, *done[-MOST_LEARNT // 2 :])}.values())


def _near(c: Candidates, rows: Ints, length: float) -> Floats:
    one, other = c.settings, c.settings[rows]
    apart = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2.0 * one @ other.T
    return np.asarray(np.exp(-0.5 * np.maximum(apart, 0.0) / length**2))


def _stall(c: Candidates, rows: Ints, slow: npt.NDArray[np.bool_], division: VarianceComponents) -> Floats:
    """The model's chance, and how often neighbours stalled that could."""
    could = c.stall_chance[rows] > 0
    if not could.any():
        return c.stall_chance
    near = _near(c, rows[could], 2.0 * division.length)
    seen = STALL_WEIGHT * c.stall_chance + near @ slow[could].astype(np.float64)
    return np.where(c.stall_chance > 0, seen / (STALL_WEIGHT + near.sum(axis=1)), 0.0)


def _fits(c: Candidates, done: Sequence[Trial], failed: Sequence[Trial]) -> tuple[Floats, Floats]:
    """Probability that memory suffices, and of each failed trial that memory was what it wanted.

    What the memory model errs by on this workload is one unknown: peaks that were measured, runs that ran and runs that
    ran out of memory each say something of it.
    """
    spread = float(c.fill_spread.mean())
    common, own = spread * np.sqrt(COMMON_FILL), spread * np.sqrt(1.0 - COMMON_FILL)
    log_weight = -0.5 * (_BIAS / common) ** 2

    def suffices(rows: Ints) -> Floats:
        return np.asarray(normal_cdf(-(c.fill[rows][:, None] + _BIAS[None, :]) / own))

    ran = np.array([trial.candidate for trial in done], dtype=np.int64)
    if len(ran):
        log_weight = log_weight + np.log(suffices(ran) + 1e-9).sum(axis=0)
    for trial in done:
        if trial.peak_bytes:
            off = np.log(trial.peak_bytes / c.peak_bytes[trial.candidate])
            log_weight = log_weight - 0.5 * ((_BIAS - off) / PEAK_SPREAD) ** 2 / len(done)
    rows = np.array([trial.candidate for trial in failed], dtype=np.int64)
    memory = np.array([_memory_share(trial) for trial in failed])
    if len(rows):
        short = 1.0 - suffices(rows)
        # A known cause counts as it is; without one, memory or anything else.
        likely = memory[:, None] * short + (1.0 - memory[:, None]) * (1.0 - short)
        unknown = 1.0 - (1.0 - OTHER_FAILURES) * (1.0 - short)
        log_weight = log_weight + np.log(np.where(np.isnan(memory)[:, None], unknown, likely) + 1e-9).sum(axis=0)
    weight = np.exp(log_weight - log_weight.max())
    weight = weight / weight.sum()
    fits = suffices(np.arange(len(c))) @ weight
    if not len(rows):
        return fits, np.zeros(0)
    short = 1.0 - fits[rows]
    guessed = short / (short + OTHER_FAILURES * (1.0 - short))
    return fits, np.where(np.isnan(memory), guessed, memory)


def _memory_share(trial: Trial) -> float:
    """How sure it is that a failed trial ran out of memory; nan where nothing is known of its cause."""
    failure = trial.failure
    if failure is None or failure.cause == "unknown":
        return float("nan")
    return failure.confidence if failure.cause == "out_of_memory" else 0.0


def _other_failures(
    c: Candidates, done: Sequence[Trial], failed: Sequence[Trial], by_memory: Floats, division: VarianceComponents
) -> Floats:
    """Chance that a candidate fails for another cause, from how its neighbours fared."""
    trials = (*done, *failed)
    if not failed:
        return np.full(len(c), OTHER_FAILURES)
    rows = np.array([trial.candidate for trial in trials], dtype=np.int64)
    other = np.concatenate([np.zeros(len(done)), (1.0 - by_memory) * [_own_fault(trial) for trial in failed]])
    near = _near(c, rows, division.length)
    return np.asarray((OTHER_FAILURES + near @ other) / (1.0 + near.sum(axis=1)))


def _own_fault(trial: Trial) -> float:
    """How far a failure speaks against the configuration: not where a network or a preemption was to blame."""
    failure = trial.failure
    if failure is None or failure.cause == "unknown":
        return 1.0
    return failure.confidence if failure.cause in OF_CONFIGURATION else 1.0 - failure.confidence
