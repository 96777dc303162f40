"""How alike two cases are by what they are called and how large they are.  Knows no Django.

A product of factors, each 1 where two cases agree.  It decides where the change of one of them cannot be priced, and
tells the very same run from others; else `history.likeness` compares what the changes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import isclose, log2

import numpy as np
import numpy.typing as npt

from history import moves
from history.case import Case
from perfmodel.chips import load_chips

Floats = npt.NDArray[np.float64]

#: Below it nothing is shown as alike.
BOUND = 0.5
#: The most that a case can be alike whose model or tokens are not known.
CAPPED = 0.9 * BOUND
#: From here on it is as good as the same run.
REPEAT = 0.9
#: The most that runs of another model, batch or micro-batch can be alike.
NEARLY = 0.99 * REPEAT

#: Measured: another bottleneck; each axis in use in one of them only; each doubling that a move is longer or
#: shorter; the angle between two moves (to the power of 1 − cosine).
OTHER_BOTTLENECK, PER_AXIS, PER_DOUBLING_MOVED, PER_ANGLE = 0.72, 0.95, 0.8, 0.2
#: Another chip of the same vendor: no two sources measured one program on two chips, so that this is of other programs
#: too.
OTHER_CHIP = 0.6
#: Judged, and more careful than measured: the sweeps' effects carry over to any size within a program, which says
#: little of sizes and programs beyond them.  Each doubling of the chips, of the model's size and of the tokens
#: per chip; another family of models; a mixture of experts for a dense model; a bottleneck that is not known; another
#: vendor's chip; a TPU for a GPU, whose links and compiler differ so that it never reaches the bound.
PER_DOUBLING_OF_CHIPS, PER_DOUBLING_OF_SIZE, PER_DOUBLING_OF_TOKENS = 0.94, 0.9, 0.9
OTHER_FAMILY, OTHER_ARCHITECTURE, UNKNOWN_BOTTLENECK, OTHER_VENDOR, OTHER_KIND = 0.9, 0.6, 0.85, 0.5, 0.3


def situation_likeness(theirs: Case, ours: Case) -> float:
    """0–1, whatever the move: chip, chips, model, tokens and bottleneck."""
    if not theirs.directed or not ours.directed:
        return 0.0
    similarity = (
        chip_likeness(theirs.chip, ours.chip)
        * _per_doubling(PER_DOUBLING_OF_CHIPS, theirs.chips, ours.chips)
        * _bottlenecks(theirs.bottleneck, ours.bottleneck)
    )
    if same_start(theirs, ours):
        return similarity
    size, tokens = (theirs.size_per_chip, ours.size_per_chip), (theirs.tokens_per_chip, ours.tokens_per_chip)
    if not all((*size, *tokens)):
        return min(similarity, CAPPED)
    similarity *= _per_doubling(PER_DOUBLING_OF_SIZE, *size) * _per_doubling(PER_DOUBLING_OF_TOKENS, *tokens)
    if theirs.mixture is not None and ours.mixture is not None and theirs.mixture != ours.mixture:
        similarity *= OTHER_ARCHITECTURE
    similarity *= PER_AXIS ** len(_in_use(theirs) ^ _in_use(ours)) if theirs.roles and ours.roles else 1.0
    other_family = theirs.family and ours.family and theirs.family != ours.family
    similarity *= OTHER_FAMILY if other_family else 1.0
    return similarity if same_work(theirs, ours) else min(similarity, NEARLY)


def same_start(theirs: Case, ours: Case) -> bool:
    """Whether two changes start from the same run: chips, mesh and batch agree, and nothing else that is known of both
    differs: `same_work`."""
    return bool(
        theirs.roles
        and theirs.batch
        and ours.batch
        and (theirs.chip, theirs.chips) == (ours.chip, ours.chips)
        and _sharded(theirs) == _sharded(ours)
        and same_work(theirs, ours)
    )


def same_work(theirs: Case, ours: Case) -> bool:
    """Whether the model, the batch, the micro-batch and the sequence length are the same, as far as both say."""
    pairs = (
        (theirs.batch, ours.batch),
        (theirs.micro_batch, ours.micro_batch),
        (theirs.seq_len, ours.seq_len),
    )
    return _same_model(theirs, ours) and all(not one or not other or isclose(one, other) for one, other in pairs)


def _same_model(theirs: Case, ours: Case) -> bool:
    """By shape where both give one, as one shape has many names; else by name and size."""
    shapes = [case.before.model for case in (theirs, ours) if case.before is not None and case.before.model is not None]
    if len(shapes) == 2:
        one, other = (replace(shape, name="", source="") for shape in shapes)
        return one == other
    names = {case.model_name.casefold() for case in (theirs, ours) if case.model_name}
    return len(names) < 2 and _agree(theirs.parameters, ours.parameters)


def _sharded(case: Case) -> dict[str, int]:
    return {role: size for role, size in case.roles.items() if size > 1}


def _in_use(case: Case) -> set[str]:
    return set(_sharded(case))


def can_make(move: Mapping[str, float], theirs: Case, ours: Case) -> bool:
    """Whether a run could change so: the axes that shrink are as wide, and its policies are those it starts from."""
    axes = all(ours.roles.get(role, 1) >= 2 ** -move[role] for role in moves.ROLES if move.get(role, 0.0) < 0)
    return axes and all(
        ours.settings.get(key, "") == theirs.settings.get(key) for key in moves.SETTINGS if move.get(key)
    )


def vector(move: Mapping[str, float]) -> Floats:
    """A move as a row: `moves.ROLES`, then `moves.KEYS`."""
    return np.array([move.get(name, 0.0) for name in (*moves.ROLES, *moves.KEYS)])


def move_likeness(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): 1 for the same move; less for another angle or length, 0 from a right angle on."""
    norm = np.linalg.norm(ours, axis=1)[:, None] * np.linalg.norm(theirs, axis=1)[None, :]
    aligned = np.minimum(1.0, ours @ theirs.T / np.maximum(norm, 1e-30))
    gap = np.abs(np.log2(np.maximum(length_ratio(ours, theirs), 1e-9)))
    similarity = PER_ANGLE ** (1.0 - aligned) * PER_DOUBLING_MOVED**gap
    return np.where(aligned > 0.5, similarity, 0.0)


def length_ratio(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): how much longer our moves are, all doublings together."""
    return np.abs(ours).sum(axis=1)[:, None] / np.maximum(np.abs(theirs).sum(axis=1)[None, :], 1e-30)


@cache
def chip_likeness(one: str, other: str) -> float:
    """0–1 of two chips, whatever their number; 0 where one is not known, as in a recording on CPU devices."""
    chips = load_chips()
    if one not in chips or other not in chips:
        return 0.0
    if chips[one].kind != chips[other].kind:
        return OTHER_KIND
    if chips[one].vendor != chips[other].vendor:
        return OTHER_VENDOR
    return 1.0 if one == other else OTHER_CHIP


def _bottlenecks(one: str, other: str) -> float:
    if not one or not other or "unknown" in (one, other):
        return UNKNOWN_BOTTLENECK
    return 1.0 if one == other else OTHER_BOTTLENECK


def _per_doubling(factor: float, one: float | None, other: float | None) -> float:
    return float(factor ** abs(log2(one / other))) if one and other else 1.0


def _agree(one: float | None, other: float | None) -> bool:
    """Counts of parameters differ a little by what is counted."""
    return not one or not other or abs(one / other - 1.0) < 0.05
