"""How alike measured optimisations are to a case, for all candidates at once.

Precedents that made the same move count as one with their weights summed, so that thousands of them stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
import numpy.typing as npt

from history.likeness import chips_likeness, hardware_likeness, model_likeness
from history.moves import doublings
from proposals.proposer.changes import RECOMPUTES
from proposals.proposer.precedents import KEYS, ROLES, Precedent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Factors of likeness beside those of `history.likeness`: each doubling that a move is longer or shorter; a bottleneck
#: that was not published.
PER_DOUBLING_MOVED, BOTTLENECK_UNKNOWN = 0.35, 0.4
#: Precedents at least this alike, relative to the most alike one, are averaged.
COMPANIONS = 0.5
#: Moves of precedents below this likeness on every candidate are not looked at.
NEGLIGIBLE = 0.02
#: Of running, what a failed run on the very same configuration takes.
WARNING_WEIGHT = 0.5
#: Candidates compared with precedents at a time.
BLOCK = 4096


@dataclass(frozen=True)
class Situation:
    """What precedents are compared with: the hardware, the verdict and the model's size of the run at hand, and the
    names of the XLA flags that a proposal would set: what other flags did tells nothing of these."""

    chip: str
    chips: int
    bottleneck: str
    parameters: float | None
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Support:
    """What precedents say of every candidate.

    said: log of the speed-up per token that alike ones had, averaged by likeness; spread: how far these differ.
    likeness: of the most alike, 0–1; which: its index among the precedents, -1 for none.  runs: factor on the
    probability that the candidate runs; warned: index of the failed run that lowers it most, -1 for none.
    """

    said: Floats
    spread: Floats
    likeness: Floats
    which: npt.NDArray[np.int64]
    runs: Floats
    warned: npt.NDArray[np.int64]


class Library:
    """Precedents made ready for one situation; asked as often as one likes."""

    def __init__(self, precedents: Sequence[Precedent], situation: Situation) -> None:
        self.precedents = tuple(precedents)
        held = [(n, _alike(p, situation), _vector(p)) for n, p in enumerate(precedents) if p.time_ratio is not None]
        held = [(n, weight, vector) for n, weight, vector in held if weight >= NEGLIGIBLE and any(vector)]
        self._moves = np.zeros((0, len(ROLES) + len(KEYS)))
        if held:
            weight = np.array([item[1] for item in held])
            tells = np.array([-np.log(self.precedents[item[0]].time_ratio or 1.0) for item in held])
            self._moves, group = np.unique(np.array([item[2] for item in held]), axis=0, return_inverse=True)
            group, count = group.reshape(-1), len(self._moves)
            self._sums = tuple(np.bincount(group, weight * tells**power, count) for power in (0, 1, 2))
            # The most alike of each group: the last of its members when sorted by weight.
            leader = np.zeros(count, dtype=np.int64)
            order = np.argsort(weight, kind="stable")
            leader[group[order]] = order
            self._most = weight[leader]
            self._leader = np.array([item[0] for item in held], dtype=np.int64)[leader]
        failed = [(n, _warning_weight(p, situation)) for n, p in enumerate(precedents) if p.failure]
        self._failed = [(n, weight) for n, weight in failed if weight >= NEGLIGIBLE]

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
            shape = _same_move(unique[rows], self._moves)
            like = shape * self._most[None, :]
            top = like.max(axis=1)
            counted = np.where((like >= COMPANIONS * top[:, None]) & (like > 0), shape, 0.0)
            mass = np.maximum(counted @ total, 1e-30)
            mean = counted @ first / mass
            said[rows], best[rows] = mean, top
            spread[rows] = np.sqrt(np.maximum(0.0, counted @ second / mass - mean**2))
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
            like = weight * PER_DOUBLING_MOVED ** (np.abs(unique[:, :-1] - theirs[None, :]).sum(axis=1) / 2)
            if item.failure == "out_of_memory" and item.remat in RECOMPUTES:
                like = np.where(unique[:, -1] > RECOMPUTES[item.remat], 0.3 * like, like)
            which, worst = np.where(like > worst, number, which), np.maximum(like, worst)
        like, found = worst[back.reshape(-1)], which[back.reshape(-1)]
        if fullness is not None:
            like = like * np.clip((fullness - 0.4) / 0.5, 0.0, 1.0)
        return 1.0 - WARNING_WEIGHT * like, np.where(like >= NEGLIGIBLE, found, -1)


def _same_move(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): 1 for the same move; less for another direction or length, 0 from a right angle on."""
    norm = np.linalg.norm(ours, axis=1)[:, None] * np.linalg.norm(theirs, axis=1)[None, :]
    aligned = np.maximum(ours @ theirs.T / np.maximum(norm, 1e-30), 0.0)
    gap = np.abs(np.abs(ours).sum(axis=1)[:, None] - np.abs(theirs).sum(axis=1)[None, :]) / 2
    return np.asarray(aligned**4 * PER_DOUBLING_MOVED**gap)


def _alike(precedent: Precedent, situation: Situation) -> float:
    """Likeness of the case, whatever the move."""
    if precedent.bottleneck and precedent.bottleneck != situation.bottleneck and not precedent.failure:
        return 0.0
    if precedent.flags and not precedent.flags & situation.flags:
        return 0.0
    known = 1.0 if precedent.bottleneck or precedent.failure else BOTTLENECK_UNKNOWN
    return known * _outside(precedent, situation)


def _outside(precedent: Precedent, situation: Situation) -> float:
    """Likeness of the hardware and the model."""
    return (
        hardware_likeness(precedent.chip, situation.chip)
        * chips_likeness(precedent.chips, situation.chips)
        * model_likeness(precedent.parameters, situation.parameters)
    )


def _vector(precedent: Precedent) -> list[float]:
    moved = doublings(precedent.before, precedent.after)
    return [moved.get(role, 0.0) for role in ROLES] + [precedent.keys.get(name, 0.0) for name in KEYS]


def _warning_weight(precedent: Precedent, situation: Situation) -> float:
    weight = _outside(precedent, situation)
    unsized = not (precedent.parameters and situation.parameters)
    return 0.5 * weight if precedent.failure == "out_of_memory" and unsized else weight
