"""What measured optimisations say of all candidates at once: the same change of the same run, and runs that failed.

Effects measured in other runs are only shown with a proposal (`precedents.closest_precedents`): they make neither order
nor confidence better (`evaluation.transfer`).
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
from history.moves import KEYS, RECOMPUTES, ROLES
from history.similarity import same_run
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
                policy = item.remat if item.case.move.get("remat") else ""
                gains[_key(vector(item.case.move), policy)].append(-log(item.time_ratio))
        #: Mean and standard deviation of what was measured, by move.  Nothing is carried over, so no model is asked.
        self._measured = {
            move: (float(np.mean(each)), hypot(float(np.std(each)), spread(1.0, priced=False)))
            for move, each in gains.items()
        }
        failed = [(n, _warning_weight(p, situation)) for n, p in enumerate(precedents) if p.failure in TELLING_FAILURES]
        self._failed = [(n, weight) for n, weight in failed if weight >= BOUND]

    def support(self, moved: Floats, sizes: Floats, remats: Sequence[str], fullness: Floats | None) -> Support:
        """moved: (candidates, ROLES + KEYS) doublings, NaN where something else changes too; sizes: (candidates, ROLES)
        log2 of the sizes; remats: policies; fullness: share of memory that a candidate fills, None where it is not
        known."""
        recomputes = np.array([RECOMPUTES[remat] for remat in remats], dtype=np.float64)
        return Support(*self._repeated(moved, remats), *self._warnings(sizes, recomputes, fullness))

    def _repeated(self, moved: Floats, remats: Sequence[str]) -> tuple[Floats, Floats]:
        if not self._measured:
            return np.zeros(len(moved)), np.full(len(moved), np.inf)
        changed = moved[:, len(ROLES) + KEYS.index("remat")] != 0
        keys = [_key(row, remat if to else "") for row, remat, to in zip(moved, remats, changed, strict=True)]
        said = np.array([self._measured.get(key, (0.0, np.inf)) for key in keys])
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


def _key(move: Floats, policy: str) -> tuple[object, ...]:
    """policy: remat after the move where it changes; steps alone are the same from none to full and to offload."""
    return (*np.round(move, DECIMALS).tolist(), policy)


def _same_run(theirs: Case, ours: Case) -> bool:
    """Whether it is the same run; the effect of other flags says nothing."""
    return same_run(theirs, ours) and (not theirs.flags or theirs.flags == ours.flags)


def _warning_weight(precedent: Precedent, situation: Case) -> float:
    """Likeness of what a failed run ran on; where its mesh differs applies to every candidate."""
    case = replace(
        precedent.ran, roles=situation.roles, micro_batch=None, bottleneck=situation.bottleneck, directed=True
    )
    return situation_likeness(case, situation)
