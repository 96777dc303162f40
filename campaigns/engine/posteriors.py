"""What the pool makes of every candidate: its time per token, whether it stalls, and whether it runs at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.residuals import MOST_LEARNT, VarianceComponents, learn
from perfmodel.legality import MemoryRun
from proposals.failures.failure import OF_CONFIGURATION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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


def _ran_out(c: Candidates, failed: Sequence[Trial], share: Floats) -> list[MemoryRun]:
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
