"""How alike measured optimisations are to a case, for all candidates at once.

Precedents that made the same move count as one with their weights summed, so that thousands of them stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np
import numpy.typing as npt

from history.case import Case
from history.labels import BOUND, length_ratio, move_likeness, situation_likeness, vector
from history.moves import KEYS, RECOMPUTES, ROLES
from proposals.proposer.precedents import TELLING_FAILURES, Precedent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Precedents at least this alike, relative to the most alike one, are averaged.
COMPANIONS = 0.8
#: Of running, what a failed run on the very same configuration takes.
WARNING_WEIGHT = 0.5
#: Each doubling of an axis between a configuration that failed and a candidate.
PER_DOUBLING_AWAY = 0.35
#: Candidates compared with precedents at a time.
BLOCK = 4096


@dataclass(frozen=True)
class Support:
    """What precedents say of every candidate.

    said: log of the speed-up per token that alike ones let expect here, averaged by likeness; spread: how far what
    these say differs.  likeness: of the most alike, 0–1; which: its index among the precedents, -1 for none.  runs:
    factor on the probability that the candidate runs; warned: index of the failed run that lowers it most, -1 for none.
    """

    said: Floats
    spread: Floats
    likeness: Floats
    which: npt.NDArray[np.int64]
    runs: Floats
    warned: npt.NDArray[np.int64]


class Library:
    """Precedents made ready for one situation; asked as often as one likes."""

    def __init__(self, precedents: Sequence[Precedent], situation: Case, least: float = BOUND) -> None:
        self.precedents = tuple(precedents)
        self.situation = situation
        held = [
            (n, _situation_similarity(p, situation), p) for n, p in enumerate(precedents) if p.time_ratio is not None
        ]
        held = [(n, weight, p) for n, weight, p in held if weight >= least and weight > 0]
        self._moves = np.zeros((0, len(ROLES) + len(KEYS)))
        if held:
            weight = np.array([item[1] for item in held])
            tells = weight * np.array([-np.log(item[2].time_ratio or 1.0) for item in held])
            self._moves, group = np.unique(
                np.array([vector(item[2].case.move) for item in held]), axis=0, return_inverse=True
            )
            group, count = group.reshape(-1), len(self._moves)
            self._sums = tuple(np.bincount(group, weight * tells**power, count) for power in (0, 1, 2))
            # The most alike of each group: the last of its members when sorted by weight.
            leader = np.zeros(count, dtype=np.int64)
            order = np.argsort(weight, kind="stable")
            leader[group[order]] = order
            self._most = weight[leader]
            self._leader = np.array([item[0] for item in held], dtype=np.int64)[leader]
        failed = [(n, _warning_weight(p, situation)) for n, p in enumerate(precedents) if p.failure in TELLING_FAILURES]
        self._failed = [(n, weight) for n, weight in failed if weight >= BOUND]

    def support(self, moved: Floats, sizes: Floats, recomputes: Floats, fullness: Floats | None) -> Support:
        """moved: (candidates, ROLES + KEYS) doublings; sizes: (candidates, ROLES) log2 of the sizes; recomputes: steps
        of the remat policy; fullness: share of memory that a candidate fills, None where it is not known."""
        unique, back = np.unique(moved, axis=0, return_inverse=True)
        back = back.reshape(-1)
        said, spread, like, which = self._supported(unique)
        runs, warned = self._warnings(sizes, recomputes, fullness)
        return Support(said[back], spread[back], like[back], which[back], runs, warned)

    def _supported(self, unique: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        count = len(unique)
        said, spread, best = np.zeros(count), np.zeros(count), np.zeros(count)
        which = np.full(count, -1, dtype=np.int64)
        if not len(self._moves):
            return said, spread, best, which
        total, first, second = self._sums
        for start in range(0, count, BLOCK):
            rows = slice(start, start + BLOCK)
            shape = move_likeness(unique[rows], self._moves)
            carries = shape * np.minimum(1.0, length_ratio(unique[rows], self._moves))
            like = shape * self._most[None, :]
            top = like.max(axis=1)
            counted = np.where((like >= COMPANIONS * top[:, None]) & (like > 0), shape, 0.0)
            mass = np.maximum(counted @ total, 1e-30)
            mean = (counted * carries) @ first / mass
            said[rows], best[rows] = mean, top
            spread[rows] = np.sqrt(np.maximum(0.0, (counted * carries**2) @ second / mass - mean**2))
            which[rows] = np.where(top > 0, self._leader[like.argmax(axis=1)], -1)
        return said, spread, best, which

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


def _situation_similarity(precedent: Precedent, situation: Case) -> float:
    """Likeness of the case, whatever the move.  The effect of other flags says nothing."""
    if precedent.case.flags and not precedent.case.flags & situation.flags:
        return 0.0
    return situation_likeness(precedent.case, situation)


def _warning_weight(precedent: Precedent, situation: Case) -> float:
    """Likeness of what a failed run ran on; where its mesh differs applies to every candidate."""
    case = replace(
        precedent.ran, roles=situation.roles, micro_batch=None, bottleneck=situation.bottleneck, directed=True
    )
    return situation_likeness(case, situation)
