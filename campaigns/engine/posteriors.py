"""Say what the pool makes of every candidate: its time per token, whether it stalls, and whether it runs at all.

log(measured / predicted) of a candidate is a Gaussian process.  Its standard deviation before any trial is that of
held-out runs as docs/accuracy.md publishes it; how much of it all candidates of a workload share, how much belongs to
the parts of the step (a slow all-gather is slow wherever it is), and how much to neighbouring settings, is fitted on
other workloads (residuals.toml, `make fit`).  Measurements are taken as Student's t: a run on a bad host is an outlier,
not a lesson."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.pool import Pool, Trial
from perfmodel.legality import MemoryRun
from perfmodel.reading import EXACT, read_rows
from proposals.failures.failure import OF_CONFIGURATION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESIDUALS_FILE = Path(__file__).with_name("residuals.toml")
#: Standard deviation of what all candidates have in common beyond that, as a logarithm: how fast this machine and
#: program are beside those that the model was fitted on.  From 0 to 0.4 it changes the trials to the best by 1 %.
OFFSET = 0.2
#: Degrees of freedom of a measurement's error, and rounds in which outliers lose their weight.
FREEDOM, ROUNDS = 4.0, 4
#: Trials that are learnt from at most: the fastest half and the latest.  More teach nothing new and cost their cube.
MOST_LEARNT = 256


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of log(measured / predicted) as multiples of the published one.

    common: shared by all candidates of a workload; parts: of the speed of each part of the step; local: shared by
    neighbours in settings, within `length` doublings.  noise: standard deviation of one measurement.
    """

    __pydantic_config__ = EXACT

    common: float
    parts: float
    local: float
    length: float
    noise: float
    source: str


@cache
def shipped() -> VarianceComponents:
    """As fitted on all recorded workloads."""
    data = tomllib.loads(RESIDUALS_FILE.read_text(encoding="utf-8"))
    return read_rows(VarianceComponents, {"residual": data["residual"]})["residual"]


def covariance(c: TrialCandidates, rows: Ints, columns: Ints, d: VarianceComponents) -> Floats:
    """(rows, columns): of log(measured / predicted), without the noise of measurements."""
    near = _near(c.settings[rows], c.settings[columns], d.length)
    shared = d.common + d.parts * (c.shares[rows] @ c.shares[columns].T) + d.local * near
    return np.asarray(OFFSET**2 + c.sigma[rows][:, None] * c.sigma[columns][None, :] * shared)


def variance(c: TrialCandidates, d: VarianceComponents) -> Floats:
    """The diagonal of `covariance` over all candidates."""
    return np.asarray(OFFSET**2 + c.sigma**2 * (d.common + d.parts * (c.shares**2).sum(axis=1) + d.local))


def learn(
    c: TrialCandidates, rows: Ints, residual: Floats, d: VarianceComponents, certain: Ints | None = None
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of log(measured / predicted) of every candidate, given those of `rows`;
    `certain` are taken as measured at their mean, as of trials that still run."""
    from scipy.linalg import cho_factor, cho_solve  # 10 MB that a process needs only where it plans

    prior = variance(c, d)
    both = rows if certain is None else np.concatenate([rows, certain])
    if not len(both):
        return np.zeros(len(c)), np.sqrt(prior)
    count = len(rows)
    within = covariance(c, both, both, d)
    across = covariance(c, np.arange(len(c)), both, d)
    mean = np.zeros(len(c))
    noise = np.full(len(both), d.noise**2)
    if count:
        for _ in range(ROUNDS):
            solved = cho_solve(cho_factor(within[:count, :count] + np.diag(noise[:count]), lower=True), residual)
            off = residual - within[:count, :count] @ solved
            noise[:count] = d.noise**2 * (FREEDOM + (off / d.noise) ** 2) / (FREEDOM + 1.0)
        mean = across[:, :count] @ solved
    factor = cho_factor(within + np.diag(noise), lower=True)
    left = prior - np.einsum("ij,ji->i", across, cho_solve(factor, across.T))
    return mean, np.sqrt(np.maximum(left, 1e-10))


#: Chance that a legal candidate fails for want of something other than memory, before any trial.
OTHER_FAILURES = 0.02
#: Trials that a prior chance of a stall is worth.
STALL_WEIGHT = 2.0
#: Open trials whose neighbourhood counts as explored: the latest.  Long campaigns plan hundreds ahead.
MOST_PENDING = 64


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


def posterior_of(c: TrialCandidates, pool: Pool, division: VarianceComponents) -> CandidatePosterior:
    """Return what is believed of every candidate after the trials of the pool."""
    done = _taught(c, pool.done)
    rows = np.array([trial.candidate for trial in done], dtype=np.int64)
    measured = np.array([np.log((trial.step_time_s or np.nan) / c.tokens[trial.candidate]) for trial in done])
    smooth, stalled = measured - c.log_s[rows], measured - c.log_stalled_s[rows]
    slow = (c.stall_chance[rows] > 0) & (np.abs(stalled) < np.abs(smooth))
    pending = np.array([trial.candidate for trial in pool.open[-MOST_PENDING:]], dtype=np.int64)
    mean, sd = learn(c, rows, np.where(slow, stalled, smooth), division, pending)
    failed = pool.failed[-MOST_LEARNT:]
    fits, by_memory = _fits(c, done, failed)
    return CandidatePosterior(
        mean=c.log_s + mean,
        sd=sd,
        stall=_stall(c, rows, slow, division),
        stall_log=c.log_stalled_s - c.log_s,
        fits=fits,
        runs=fits * (1.0 - _other_failures(c, done, failed, by_memory, division)),
    )


def _taught(c: TrialCandidates, done: Sequence[Trial]) -> Sequence[Trial]:
    if len(done) <= MOST_LEARNT:
        return done
    fastest = sorted(done, key=lambda trial: (trial.step_time_s or 0.0) / c.tokens[trial.candidate])[: MOST_LEARNT // 2]
    return list({id(trial): trial for trial in (*fastest, *done[-MOST_LEARNT // 2 :])}.values())


def _near(one: Floats, other: Floats, length: float) -> Floats:
    """Return the likeness of settings (0–1): (rows of one, rows of the other)."""
    apart = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2.0 * one @ other.T
    return np.asarray(np.exp(-0.5 * np.maximum(apart, 0.0) / length**2))


def _stall(c: TrialCandidates, rows: Ints, slow: npt.NDArray[np.bool_], division: VarianceComponents) -> Floats:
    """The model's chance, and how often neighbours stalled that could."""
    could = c.stall_chance[rows] > 0
    if not could.any():
        return c.stall_chance
    near = _near(c.settings, c.settings[rows[could]], 2.0 * division.length)
    seen = STALL_WEIGHT * c.stall_chance + near @ slow[could].astype(np.float64)
    return np.where(c.stall_chance > 0, seen / (STALL_WEIGHT + near.sum(axis=1)), 0.0)


def _fits(c: TrialCandidates, done: Sequence[Trial], failed: Sequence[Trial]) -> tuple[Floats, Floats]:
    """Probability that memory suffices, and of each failed trial that it ran out of memory.

    Trials that ran and trials of a known cause come first; where the cause is not known, memory is as likely as it
    looks to these.
    """
    ran = [MemoryRun(c.memory_of(trial.candidate), trial.peak_bytes) for trial in done]
    share = np.array([_memory_share(trial) for trial in failed])
    posterior = c.known.with_runs([*ran, *_ran_out(c, failed, share)])
    fits = posterior.probability_fits(posterior.corrected(c.used))
    if not np.isnan(share).any():
        return fits, share
    short = 1.0 - fits[[trial.candidate for trial in failed]]
    share = np.where(np.isnan(share), short / (short + OTHER_FAILURES * (1.0 - short)), share)
    posterior = c.known.with_runs([*ran, *_ran_out(c, failed, share)])
    return posterior.probability_fits(posterior.corrected(c.used)), share


def _ran_out(c: TrialCandidates, failed: Sequence[Trial], share: Floats) -> list[MemoryRun]:
    """Failed trials that tell of memory: what failed for another cause may not have needed all of it yet."""
    return [
        MemoryRun(c.memory_of(trial.candidate), None, float(of))
        for trial, of in zip(failed, share, strict=True)
        if of > 0.0
    ]


def _memory_share(trial: Trial) -> float:
    """How sure it is that a failed trial ran out of memory; nan where nothing is known of its cause."""
    failure = trial.failure
    if failure is None or failure.cause == "unknown":
        return float("nan")
    return failure.confidence if failure.cause == "out_of_memory" else 0.0


def _other_failures(
    c: TrialCandidates, done: Sequence[Trial], failed: Sequence[Trial], by_memory: Floats, division: VarianceComponents
) -> Floats:
    """Chance that a candidate fails for another cause, from how its neighbours fared."""
    trials = (*done, *failed)
    if not failed:
        return np.full(len(c), OTHER_FAILURES)
    rows = np.array([trial.candidate for trial in trials], dtype=np.int64)
    other = np.concatenate([np.zeros(len(done)), (1.0 - by_memory) * [_own_fault(trial) for trial in failed]])
    near = _near(c.settings, c.settings[rows], division.length)
    return np.asarray((OTHER_FAILURES + near @ other) / (1.0 + near.sum(axis=1)))


def _own_fault(trial: Trial) -> float:
    """How far a failure speaks against the configuration: not where a network or a preemption was to blame."""
    failure = trial.failure
    if failure is None or failure.cause == "unknown":
        return 1.0
    return failure.confidence if failure.cause in OF_CONFIGURATION else 1.0 - failure.confidence
