"""Scores of predictions: errors, coverage, and how well the configurations of a workload are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from evaluation.accuracy_numbers import ErrorScores, RankingScores

Floats = npt.NDArray[np.float64]

#: Configurations a workload needs to be ranked.
FEWEST = 3
#: A configuration this close to the fastest is as good.
AS_GOOD = 0.02


def errors(log_error: Floats, naive_error: Floats, inside: npt.NDArray[np.bool_] | None = None) -> ErrorScores:
    """Absolute relative errors of estimates, and of the naive model on the same rows; share inside the 80 % interval.

    log_error: log(estimate / measured).
    """
    ours, plain = np.abs(np.expm1(log_error)), np.abs(np.expm1(naive_error))
    return ErrorScores(
        rows=len(ours),
        median=float(np.median(ours)),
        mean=float(ours.mean()),
        bias=float(np.expm1(np.median(log_error))),
        naive_median=float(np.median(plain)),
        naive_mean=float(plain.mean()),
        in_80_range=None if inside is None else float(inside.mean()),
    )


@dataclass(frozen=True)
class Ranked:
    """Of one workload: Spearman of predicted and measured; how much longer than the fastest the first choice, and the
    best of the first three, take; how many runs, in the order predicted, until one is as good as the fastest."""

    workload: str
    runs: int
    spearman: float
    regret: float
    regret_of_three: float
    trials: int
    spread: float


def rank(workload: str, predicted_s: Floats, measured_s: Floats) -> Ranked:
    order = np.argsort(predicted_s, kind="stable")
    fastest = float(measured_s.min())
    tried = measured_s[order]
    return Ranked(
        workload=workload,
        runs=len(order),
        spearman=float(spearmanr(predicted_s, measured_s).statistic) if np.ptp(predicted_s) > 0 else float("nan"),
        regret=float(tried[0] / fastest - 1.0),
        regret_of_three=float(tried[:3].min() / fastest - 1.0),
        trials=int(np.flatnonzero(tried <= fastest * (1.0 + AS_GOOD))[0]) + 1,
        spread=float(measured_s.max() / fastest - 1.0),
    )


def rank_all(workloads: Sequence[str], predicted_s: Floats, measured_s: Floats) -> list[Ranked]:
    """Every workload with enough configurations."""
    names = np.array(workloads)
    ranked = []
    for name in dict.fromkeys(workloads):
        rows = names == name
        if rows.sum() >= FEWEST and np.ptp(measured_s[rows]) > 0:
            ranked.append(rank(name, predicted_s[rows], measured_s[rows]))
    return ranked


def summary(ranked: Sequence[Ranked]) -> RankingScores | None:
    """Over workloads; None where there are none."""
    if not ranked:
        return None
    rho = [one.spearman for one in ranked if np.isfinite(one.spearman)]
    regret, three = [one.regret for one in ranked], [one.regret_of_three for one in ranked]
    return RankingScores(
        workloads=len(ranked),
        spearman=float(np.mean(rho)) if rho else None,
        regret_median=float(np.median(regret)),
        regret_mean=float(np.mean(regret)),
        three_median=float(np.median(three)),
        three_mean=float(np.mean(three)),
        trials_median=float(np.median([one.trials for one in ranked])),
    )
