"""A proposal against its control arm: adopt it, reject it, or no difference, from repeated runs of both.  Pure.

The control arm is the baseline run again in the same wave, so that whatever changed on the cluster meanwhile changed
for both.  Steps of one run are not independent: a run that was placed badly is slow in all of its steps.  The run is
therefore the unit: each gives the logarithm of its median step time after warm-up, and the ratio of two arms has the
uncertainty of these values over the repeats (Student's t with pooled variance, as the relative variation of runs on one
cluster is one quantity).  With two to five repeats neither a bootstrap over runs (three values have ten resamples, and
the interval covers far less than it says) nor a rank test (three against three never gets below p = 0.1) can do this;
the bootstrap serves where there is data for it, the median of the steps of one run, in blocks because neighbouring
steps are alike.  The variance is never taken below what the steps alone give.  How often the interval holds is in
docs/launches.md, from `tests/launches/test_control_arm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, expm1, isfinite, log, sqrt

import numpy as np

import formatting
from experiments.codec import Codec
from perfmodel.arrays import special

ADOPT, REJECT, NO_DIFFERENCE, UNDECIDED = "adopt", "reject", "no_difference", "undecided"
WORDS = {ADOPT: "Adopt", REJECT: "Reject", NO_DIFFERENCE: "No difference", UNDECIDED: "Undecided"}

LEVEL = 0.95
#: Repeats of an arm below which its variation from run to run is unknown, and steps below which a median says little.
LEAST_REPEATS, LEAST_STEPS = 2, 10
#: A ratio within this of one is no difference worth a change, as in the history (`history.record.NO_CHANGE`).
WORTHWHILE = 0.01
_RESAMPLES = 400
_MOST_STEPS = 5_000
_MOST_REPEATS_NAMED = 50


@dataclass(frozen=True)
class ArmRun:
    """One repeat of an arm.

    step_times_s: seconds of every step in order, warm-up included, as they were timed.  warm_up: steps to leave out at
    the beginning, None: found in the times.  failure: why it did not finish, a sentence; empty where it did.
    """

    step_times_s: tuple[float, ...] = ()
    warm_up: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class Arm:
    """name: as it is called on the page.  work_per_step: tokens per step (per chip where the arms differ in chips), so
    that arms of different batch compare per token; 1 where neither is known."""

    name: str
    runs: tuple[ArmRun, ...]
    work_per_step: float = 1.0


@dataclass(frozen=True)
class ArmSummary:
    """median_s: geometric mean of the medians of the repeats, seconds per step; None without a usable run.
    run_medians_s: of each usable repeat.  spread: relative standard deviation from run to run, None with one repeat.
    within: relative standard error of one run's median by its steps alone.  steps: used, after warm_up steps left out.
    """

    name: str
    repeats: int
    failed: int
    steps: int
    warm_up: int
    median_s: float | None
    run_medians_s: tuple[float, ...]
    spread: float | None
    within: float | None


@dataclass(frozen=True)
class Verdict:
    """speedup: time per token of the control over that of the proposal, above 1 the proposal is faster; low, high: its
    95 % interval.  None where there is too little data.  missing: what would have to be added, sentences.
    resolution: the relative difference that these repeats could have shown; None without an interval.
    """

    outcome: str
    sentence: str
    proposal: ArmSummary
    control: ArmSummary
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    resolution: float | None = None
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return WORDS[self.outcome]


VERDICT = Codec(Verdict)


def judge(proposal: Arm, control: Arm, expected: float | None = None) -> Verdict:
    """The verdict on a proposal by its runs and those of its control arm.

    expected: the predicted speed-up, by which the number of repeats is named that would show it.  Raises ValueError
    where a step time or an amount of work is no positive number.
    """
    one, two = _summary(proposal), _summary(control)
    if broken := _failed(one, two, proposal, control):
        return broken
    if missing := (*_missing(one), *_missing(two)):
        return Verdict(UNDECIDED, f"Too little data for a verdict. {' '.join(missing)}", one, two, missing=missing)
    difference, half, one_more = _interval(one, two, log(proposal.work_per_step / control.work_per_step))
    speedup, low, high = exp(difference), exp(difference - half), exp(difference + half)
    resolution = expm1(half)
    outcome = _outcome(low, high)
    more = _repeats_for(one_more, one, expected) if outcome == NO_DIFFERENCE and resolution > WORTHWHILE else ""
    return Verdict(
        outcome, _sentence(outcome, speedup, low, high, resolution), one, two, speedup, low, high, resolution,
        (more,) if more else (),
    )  # fmt: skip


def warm_up(times_s: Sequence[float]) -> int:
    """How many steps at the beginning are warm-up: the first, which compiles, and those after it until one lies within
    three standard deviations (by the median absolute deviation) of the second half.  At most half of them."""
    values = np.asarray(times_s, dtype=float)
    if len(values) < 2:
        return len(values)
    later = values[len(values) // 2 :]
    middle = float(np.median(later))
    reach = 3 * 1.4826 * float(np.median(np.abs(later - middle))) + 1e-3 * middle
    for at in range(1, len(values) // 2):
        if abs(values[at] - middle) <= reach:
            return at
    return max(1, len(values) // 2)


def _summary(arm: Arm) -> ArmSummary:
    if not (isfinite(arm.work_per_step) and arm.work_per_step > 0):
        raise ValueError(f"The work per step of {arm.name} must be a positive number.")
    medians, errors, steps, left_out = [], [], 0, 0
    for run in arm.runs:
        if any(not (isfinite(value) and value > 0) for value in run.step_times_s):
            raise ValueError(f"Step times of {arm.name} must be positive numbers of seconds.")
        first = warm_up(run.step_times_s) if run.warm_up is None else run.warm_up
        kept = np.asarray(run.step_times_s[first:][-_MOST_STEPS:], dtype=float)
        if run.failure or len(kept) < LEAST_STEPS:
            continue
        medians.append(float(np.median(kept)))
        errors.append(_median_error(kept))
        steps += len(kept)
        left_out += first
    logs = np.log(medians)
    return ArmSummary(
        arm.name,
        repeats=len(medians),
        failed=sum(bool(run.failure) for run in arm.runs),
        steps=steps,
        warm_up=left_out,
        median_s=exp(float(logs.mean())) if medians else None,
        run_medians_s=tuple(medians),
        spread=float(logs.std(ddof=1)) if len(medians) > 1 else None,
        within=sqrt(float(np.mean(np.square(errors)))) if errors else None,
    )


def _median_error(kept: np.ndarray) -> float:
    """Relative standard error of the median of steps that resemble their neighbours: moving blocks of n^(1/3) steps,
    resampled (Künsch 1989).  The same steps always give the same number."""
    count = len(kept)
    block = max(1, round(count ** (1 / 3)))
    draws = np.random.default_rng(count).integers(0, count - block + 1, size=(_RESAMPLES, ceil(count / block)))
    picked = (draws[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)[:, :count]
    return float(np.log(np.median(kept[picked], axis=1)).std(ddof=1))


def _failed(one: ArmSummary, two: ArmSummary, proposal: Arm, control: Arm) -> Verdict | None:
    if two.failed and not two.repeats:
        why = next(run.failure for run in control.runs if run.failure)
        missing = ("The control arm failed: run both arms again once the baseline runs.",)
        return Verdict(UNDECIDED, f"The control arm did not run either: {why}", one, two, missing=missing)
    if one.failed and not one.repeats and two.repeats:
        why = next(run.failure for run in proposal.runs if run.failure)
        return Verdict(REJECT, f"The proposal did not run while its control arm did: {why}", one, two)
    return None


def _missing(arm: ArmSummary) -> tuple[str, ...]:
    if arm.repeats >= LEAST_REPEATS:
        return ()
    said = f"{arm.name}: {formatting.counted(arm.repeats, 'run')} with at least {LEAST_STEPS} steps after warm-up"
    return (f"{said}, {LEAST_REPEATS} are needed to estimate the run-to-run variation.",)


def _interval(one: ArmSummary, two: ArmSummary, work: float) -> tuple[float, float, float]:
    """Logarithm of the speed-up, half the width of its interval, and the standard deviation of one run."""
    n, m = one.repeats, two.repeats
    logs = [np.log(arm.run_medians_s) for arm in (one, two)]
    freedom = n + m - 2
    between = sum(float(np.square(values - values.mean()).sum()) for values in logs) / freedom
    assert one.within is not None and two.within is not None
    within = max(one.within, two.within) ** 2
    one_run = sqrt(max(between, within))
    half = float(special("stdtrit", freedom, (1 + LEVEL) / 2)) * one_run * sqrt(1 / n + 1 / m)
    return float(logs[1].mean() - logs[0].mean()) + work, half, one_run


def _outcome(low: float, high: float) -> str:
    if low >= 1 / (1 + WORTHWHILE) and high <= 1 + WORTHWHILE:
        return NO_DIFFERENCE
    if low > 1:
        return ADOPT
    return REJECT if high < 1 else NO_DIFFERENCE


def _repeats_for(one_run: float, arm: ArmSummary, expected: float | None) -> str:
    """How many repeats of each arm would show the expected difference, else one of five per cent."""
    wanted = abs(log(expected)) if expected and abs(log(expected)) > WORTHWHILE else log(1.05)
    difference = formatting.share(expm1(wanted), 2)
    for repeats in range(LEAST_REPEATS, _MOST_REPEATS_NAMED + 1):
        half = float(special("stdtrit", 2 * repeats - 2, (1 + LEVEL) / 2)) * one_run * sqrt(2 / repeats)
        if half <= wanted:
            if repeats <= arm.repeats:
                return ""
            return f"{repeats} repeats of each arm would show a difference of {difference}."
    return (
        f"Runs vary by {formatting.share(one_run, 2)}, too much to show a difference of {difference} by repeating them."
    )


def _sentence(outcome: str, speedup: float, low: float, high: float, resolution: float) -> str:
    interval = f"{formatting.plain(speedup, 'speedup')} (95 % interval {formatting.span(low, high, 'speedup')})"
    if outcome == ADOPT:
        return f"The proposal is faster than its control arm: {interval}."
    if outcome == REJECT:
        return f"The proposal is slower than its control arm: {interval}."
    least = formatting.share(resolution, 2)
    return f"No difference from the control arm: {interval}; a difference below {least} would not be detected."
