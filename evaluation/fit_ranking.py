"""Learn how candidates are weighed from what proposals came to on measured sweeps: ranking.toml.

The value of three proposals from one start is the measured log gain of the first and of the best of three, on the mean,
less what its failed trials cost.  What is reported is of workloads that were left out of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from evaluation.sweep_baselines import fold_of
from evaluation.sweep_candidates import Sweep
from evaluation.sweep_scores import Outcomes, joined, outcome
from proposals.proposer.choose import choose, in_order
from proposals.proposer.prices import Ranked, Weights, utility
from proposals.proposer.space import Candidates

#: Values tried of each weight, in the order of the search.
TRIED: Mapping[str, tuple[float, ...]] = {"simplify": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)}
#: What a failed trial costs, in log gain: a crash shows within minutes of a run that was to last for days, and a step
#: of 5 % is worth that.  A stated judgement: no outcome says what a trial costs.
FAILED_TRIAL = 0.05
#: Where the model is not known.  Of measured pairs with the model hidden the candidates that would be proposed gained
#: 67 % of what was predicted (docs/accuracy-confidence.md), and those chosen with this discount gained the most: 0.05
#: to 0.15 are as good.  With the model known none does better than zero.
DISCOUNT = 0.1
NOTHING = Weights(discount=DISCOUNT, failed_trial=FAILED_TRIAL, simplify=0.0)


@dataclass(frozen=True)
class Start:
    """One run to start from, priced once: only the weights change."""

    sweep: Sweep
    start: int

    @cached_property
    def _ranked(self) -> tuple[Candidates, Ranked]:
        return self.sweep.ranked(self.start, NOTHING)

    def outcome(self, weights: Weights) -> Outcomes:
        c, ranked = self._ranked
        ranked = replace(ranked, utility=utility(c, ranked.gain, ranked.runs, weights))
        rows = c.mesh_of  # of the group's runs
        if len(c) < 3:
            listed = [int(rows[i]) for i in in_order(c, ranked) if i != c.baseline]
            return outcome(self.sweep.group, self.start, [*listed, self.start], listed)
        three = [int(rows[choice.index]) for choice in choose(c, ranked, weights=weights)]
        listed = [int(rows[i]) for i in in_order(c, ranked) if i != c.baseline]
        return outcome(self.sweep.group, self.start, three, listed)


def starts_of(sweep: Sweep) -> tuple[Start, ...]:
    return tuple(Start(sweep, start) for start in sweep.group.starts)


def value(outcomes: Outcomes) -> float:
    """Mean log gain of first and best of three, failed trials paid for."""
    first = outcomes.first - FAILED_TRIAL * outcomes.crashed
    three = outcomes.three - FAILED_TRIAL * outcomes.three_crashed
    return float(np.mean(0.5 * (first + three)))


class Learner:
    """Remembers what each workload came to under each set of weights."""

    def __init__(self, sweeps: Sequence[Sweep]) -> None:
        self.starts = {sweep.group.workload: starts_of(sweep) for sweep in sweeps}
        self.source = {sweep.group.workload: sweep.group.source for sweep in sweeps}
        folds = fold_of([sweep.group for sweep in sweeps])
        self.fold = {sweep.group.workload: folds[sweep.group.workload] for sweep in sweeps}
        self._known: dict[tuple[str, Weights], Outcomes] = {}

    def outcomes(self, name: str, weights: Weights) -> Outcomes:
        key = (name, weights)
        if key not in self._known:
            self._known[key] = joined([start.outcome(weights) for start in self.starts[name]])
        return self._known[key]

    def score(self, names: Sequence[str], weights: Weights) -> float:
        """Mean value; a source with n workloads counts as the root of n, since these share a program and a cluster."""
        return self._mean(names, {name: value(self.outcomes(name, weights)) for name in names})[0]

    def better(self, names: Sequence[str], weights: Weights, than: Weights) -> tuple[float, float]:
        """By how much one set of weights is worth more than another, and the standard error over workloads."""
        one, other = ({name: value(self.outcomes(name, each)) for name in names} for each in (weights, than))
        return self._mean(names, {name: one[name] - other[name] for name in names})

    def _mean(self, names: Sequence[str], values: Mapping[str, float]) -> tuple[float, float]:
        by_source: dict[str, list[float]] = {}
        for name in names:
            by_source.setdefault(self.source[name], []).append(values[name])
        share = {source: len(groups) ** 0.5 for source, groups in by_source.items()}
        total = sum(share.values())
        mean = sum(share[source] * float(np.mean(groups)) for source, groups in by_source.items()) / total
        variance = sum(
            (share[source] / total) ** 2 * float(np.var(groups, ddof=1)) / len(groups)
            for source, groups in by_source.items()
            if len(groups) > 1
        )
        return mean, variance**0.5

    def search(self, names: Sequence[str]) -> Weights:
        """Each weight the largest that is worth no less than the best by more than its standard error, since what is
        simpler is sooner tried and understood."""
        best = NOTHING
        for field, values in TRIED.items():
            candidates = [replace(best, **{field: each}) for each in values]
            most = max(candidates, key=lambda each: self.score(names, each))
            worth = [self.better(names, each, most) for each in candidates]
            best = max(
                (each for each, (gain, error) in zip(candidates, worth, strict=True) if gain >= -error),
                key=lambda each: float(getattr(each, field)),
            )
        return best

    def left_out(self) -> Iterator[tuple[str, Weights]]:
        """Every workload with the weights learnt on the other folds."""
        for fold in sorted(set(self.fold.values())):
            weights = self.search([name for name in self.starts if self.fold[name] != fold])
            yield from ((name, weights) for name in self.starts if self.fold[name] == fold)

    def tried(self) -> Mapping[str, Mapping[float, tuple[float, float]]]:
        """What every value of every weight is worth more than nothing, with the standard error of that."""
        names = list(self.starts)
        return {
            field: {each: self.better(names, replace(NOTHING, **{field: each}), NOTHING) for each in values}
            for field, values in TRIED.items()
        }
