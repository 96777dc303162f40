"""What a ranking is worth on measured runs: start at every run that ran, follow it, read off what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from evaluation.sweep_groups import Group

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: A run within so much of the fastest is as good as it.
AS_GOOD = 1.02
#: Runs from which a rank correlation of a group counts.
LEAST_RANKED = 5


@dataclass(frozen=True)
class Outcomes:
    """Arrays over the starts of a group.

    first, three: measured log gain per token of the first proposal, and of the best of three and the start; a run that
    failed, and one that keeps the start, gains 0.  crashed, three_crashed: share of the first, and of the first three,
    that failed.  keeps: whether the first keeps the start.  left, three_left: time per token after the first (if it
    ran), and after three, over the fastest measured, less 1.  start_left: the same of the start.  trials: runs down the
    list until one is as good as the fastest, the failed ones counted; 0 where the start is.
    """

    first: Floats
    three: Floats
    crashed: Floats
    three_crashed: Floats
    keeps: Floats
    left: Floats
    three_left: Floats
    start_left: Floats
    trials: Floats


def follow(group: Group, utility: Floats) -> Outcomes:
    """utility: (runs, runs), of proposing the second from the first, -inf where it must not be proposed; the current
    configuration, on the diagonal, is proposed first where nothing promises more."""
    outcomes = []
    for start in group.starts:
        order = np.argsort(-utility[start], kind="stable")
        listed = [int(i) for i in order if i != start and np.isfinite(utility[start, i])]
        # A candidate as good as the current configuration is not worth a trial.
        keeps = not listed or utility[start, listed[0]] <= utility[start, start]
        outcomes.append(outcome(group, start, [*([start] if keeps else []), *listed][:3], listed))
    return joined(outcomes)


def outcome(group: Group, start: int, three: Sequence[int], listed: Sequence[int]) -> Outcomes:
    """Of one start.  three: the proposals, the start among them where it is to be kept; listed: all others that may be
    proposed, best first."""
    gain = np.log(group.per_token[start] / group.per_token)
    first = float(np.nan_to_num(gain[three[0]]))
    best = float(np.nanmax([0.0, *gain[list(three)]]))
    most = float(np.log(group.per_token[start] / group.best))
    good = np.nan_to_num(gain[list(listed)], nan=-np.inf) >= most - np.log(AS_GOOD)
    # Where the list ends before, every run that is left out of it must be tried too.
    trials = 0.0 if most <= np.log(AS_GOOD) else float(np.argmax(good) + 1 if good.any() else len(group) - 1)
    values = (
        first,
        best,
        float(not group.ran[three[0]]),
        float((~group.ran[list(three)]).any()),
        float(three[0] == start),
        np.expm1(most - first),
        np.expm1(most - best),
        np.expm1(most),
        trials,
    )
    return Outcomes(*(np.array([value]) for value in values))


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in Outcomes.__annotations__}
    )


def rank_correlation(group: Group, time_s: Floats) -> float | None:
    """Spearman's between predicted and measured time per token of the runs that ran; None for very few."""
    ran = np.isfinite(group.per_token) & np.isfinite(time_s)
    if ran.sum() < LEAST_RANKED:
        return None
    value = float(spearmanr((time_s / group.tokens)[ran], group.per_token[ran]).statistic)
    return value if np.isfinite(value) else 0.0


def scores(outcomes: Outcomes) -> Mapping[str, float]:
    """Means over the starts; gains as geometric means of factors."""
    moves = outcomes.keeps == 0
    return {
        "starts": len(outcomes.first),
        "first": float(np.exp(outcomes.first.mean())),
        "three": float(np.exp(outcomes.three.mean())),
        "faster": float((outcomes.first > 0).mean()),
        "slower": float((outcomes.first < 0).mean()),
        "crashed": float(outcomes.crashed.mean()),
        "three_crashed": float(outcomes.three_crashed.mean()),
        "keeps": float((~moves).mean()),
        "left_median": float(np.median(outcomes.left)),
        "left_mean": float(outcomes.left.mean()),
        "three_left_median": float(np.median(outcomes.three_left)),
        "three_left_mean": float(outcomes.three_left.mean()),
        "start_left_median": float(np.median(outcomes.start_left)),
        "trials": float(outcomes.trials.mean()),
        "trials_median": float(np.median(outcomes.trials)),
    }
