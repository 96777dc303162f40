"""What measured optimisations say of all candidates at once: the same change of the same run, and runs that failed.

The effect of changes in other runs is only shown with a proposal (`precedents.closest_precedents`): it makes neither
order nor confidence better (`evaluation.transfer`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, log, log2

import numpy as np
import numpy.typing as npt

from history.case import Case
from history.labels import BOUND, situation_likeness, vector
from history.likeness import same_run
from history.moves import RECOMPUTES, ROLES
from history.uncertainty import spread
from proposals.proposer.precedents import TELLING_FAILURES, Precedent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Of running, what a failed run on the very same configuration takes.
WARNING_WEIGHT = 0.5
#: Each doubling of an axis between a configuration that failed and a candidate.
PER_DOUBLING_AWAY = 0.35
#: Moves are the same that agree to so many decimals of a doubling.
DECIMALS = 6


@dataclass(frozen=True)
class Support:
    """What precedents say of every candidate.

    measured: log of the speed-up per token that the same change of the same run brought, the mean of its measurements;
    spread: its standard deviation, infinite where none was measured.  runs: factor on the probability that the
    candidate runs; warned: index of the failed run that lowers it most, -1 for none.
    """

    measured: Floats
    spread: Floats
    runs: Floats
    warned: Ints


class Library:
    """Precedents made ready for one situation; asked as often as one likes."""

    def __init__(self, precedents: Sequence[Precedent], situation: Case) -> None:
        self.precedents = tuple(precedents)
        gains = defaultdict(list)
        for item in precedents:
            if item.time_ratio is not None and _same_run(item.case, situation):
                gains[_key(vector(item.case.move))].append(-log(item.time_ratio))
        #: Mean and standard deviation of what was measured, by move.  Nothing is carried over, so no model is asked.
        self._measured = {
            move: (float(np.mean(each)), hypot(float(np.std(each)), spread(1.0, priced=False)))
            for move, each in gains.items()
        }
        failed = [(n, _warning_weight(p, situation)) for n, p in enumerate(precedents) if p.failure in TELLING_FAILURES]
        self._failed = [(n, weight) for n, weight in failed if weight >= BOUND]

    def support(self, moved: Floats, sizes: Floats, recomputes: Floats, fullness: Floats | None) -> Support:
        """moved: (candidates, ROLES + KEYS) doublings; sizes: (candidates, ROLES) log2 of the sizes; recomputes: steps
        of the remat policy; fullness: share of memory that a candidate fills, None where it is not known."""
        return Support(*self._repeated(moved), *self._warnings(sizes, recomputes, fullness))

    def _repeated(self, moved: Floats) -> tuple[Floats, Floats]:
        if not self._measured:
            return np.zeros(len(moved)), np.full(len(moved), np.inf)
        unique, back = np.unique(moved, axis=0, return_inverse=True)
        said = np.array([self._measured.get(_key(row), (0.0, np.inf)) for row in unique])[back.reshape(-1)]
        return said[:, 0], said[:, 1]

    def _warnings(self, sizes: Floats, recomputes: Floats, fullness: Floats | None) -> tuple[Floats, Ints]:
        """What failed runs of alike configurations take from the probability of running, and which takes most.

        A run that ran out of memory warns only those that recompute no more, and less where memory was computed and is
        far from full.
        """
        count = len(sizes)
        if not self._failed:
            return np.ones(count), np.full(count, -1, dtype=np.int64)
        unique, back = np.unique(np.column_stack([sizes, recomputes]), axis=0, return_inverse=True)
        worst, which = np.zeros(len(unique)), np.full(len(unique), -1, dtype=np.int64)
        for number, weight in self._failed:
            item = self.precedents[number]
            theirs = np.array([log2(item.after.get(role, 1)) for role in ROLES])
            like = weight * PER_DOUBLING_AWAY ** (np.abs(unique[:, :-1] - theirs[None, :]).sum(axis=1) / 2)
            if item.failure == "out_of_memory" and item.remat in RECOMPUTES:
                like = np.where(unique[:, -1] > RECOMPUTES[item.remat], 0.3 * like, like)
            which, worst = np.where(like > worst, number, which), np.maximum(like, worst)
        like, worst_failure = worst[back.reshape(-1)], which[back.reshape(-1)]
        if fullness is not None:
            like = like * np.clip((fullness - 0.4) / 0.5, 0.0, 1.0)
        like = np.where(like >= BOUND, like, 0.0)
        return 1.0 - WARNING_WEIGHT * like, np.where(like > 0, worst_failure, -1)


def _key(move: Floats) -> tuple[float, ...]:
    return tuple(np.round(move, DECIMALS).tolist())


def _same_run(theirs: Case, ours: Case) -> bool:
    """The effect of other flags says nothing."""
    return same_run(theirs, ours) and (not theirs.flags or theirs.flags == ours.flags)


def _warning_weight(precedent: Precedent, situation: Case) -> float:
    """Likeness of what a failed run ran on; where its mesh differs applies to every candidate."""
    case = replace(
        precedent.ran, roles=situation.roles, micro_batch=None, bottleneck=situation.bottleneck, directed=True
    )
    return situation_likeness(case, situation)
