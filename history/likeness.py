"""How alike two cases are, part by part.  Knows no Django.

A search adds the parts up (`score`) and says each in words; the Proposer multiplies the same likenesses of hardware,
number of chips and model to weigh what a precedent says (`proposals.proposer.likeness`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import log2

from history import moves
from history.record import Record
from perfmodel.chips import get_chip, load_chips

#: What each part counts at most; together 1.  The bottleneck and the move decide whether a result carries over, the
#: hardware and the model how far.
WEIGHTS = {"bottleneck": 0.28, "move": 0.28, "hardware": 0.16, "model": 0.12, "scale": 0.08, "meaning": 0.08}


#: Another chip of the same vendor; another vendor's, whose links and libraries differ; each doubling of the number of
#: chips, and of the model's size.
OTHER_CHIP, OTHER_KIND = 0.6, 0.3
PER_DOUBLING_OF_CHIPS, PER_DOUBLING_OF_MODEL = 0.8, 0.85
#: What is less alike than this is not said to be alike.
WORTH_SAYING = 0.4


def hardware_likeness(one: str, other: str) -> float:
    """0–1 of two chips, whatever their number."""
    if one == other:
        return 1.0
    chips = load_chips()
    same = one in chips and other in chips and chips[one].vendor == chips[other].vendor
    return OTHER_CHIP if same else OTHER_KIND


def chips_likeness(one: int, other: int) -> float:
    """0–1 of two numbers of chips."""
    return float(PER_DOUBLING_OF_CHIPS ** abs(log2(one / other)))


def model_likeness(one: float | None, other: float | None) -> float:
    """0–1 of two numbers of parameters; 1 where one is not known."""
    return float(PER_DOUBLING_OF_MODEL ** abs(log2(one / other))) if one and other else 1.0


@dataclass(frozen=True)
class Case:
    """What a run or a record is known by; what is not known stays empty and adds nothing.

    move: of the mesh in doublings by role (`history.moves.move`), for a proposal; changes: kinds of change
    (`history.record.CHANGES`); roles: sizes by role that run now.  model_family: default the one that the model's name
    begins with.  text: in words.
    """

    chip: str = ""
    chips: int | None = None
    model_name: str = ""
    model_family: str = ""
    parameters: float | None = None
    bottleneck: str = ""
    move: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    roles: Mapping[str, int] = field(default_factory=dict)
    text: str = ""

    @property
    def family(self) -> str:
        return self.model_family or family_of(self.model_name)


@dataclass(frozen=True)
class Part:
    """One way in which a case is like another.  points: what it adds, up to its weight; text: for people."""

    name: str
    points: float
    text: str


def case_of(record: Record) -> Case:
    """What a record is known by."""
    before = moves.role_sizes(record.before)
    return Case(
        chip=record.chip,
        chips=record.chips,
        model_name=record.model_name,
        model_family=record.model_family,
        parameters=record.parameters,
        bottleneck=record.bottleneck,
        move=moves.move(record),
        changes=tuple(record.changes),
        roles=before,
    )


def score(parts: tuple[Part, ...]) -> float:
    """0–1: the sum of the parts."""
    return sum(part.points for part in parts)


def parts_of(theirs: Case, ours: Case, meaning: float = 0.0) -> tuple[Part, ...]:
    """The ways in which one case is like the other, what counts most first; meaning: how alike their words are, 0–1."""
    parts = [
        Part(name, WEIGHTS[name] * share, text)
        for name, (share, text) in {
            "bottleneck": _bottleneck(theirs, ours),
            "move": _move(theirs, ours),
            "hardware": _hardware(theirs, ours),
            "model": _model(theirs, ours),
            "scale": _scale(theirs, ours),
            "meaning": (max(0.0, meaning), f"similar description ({meaning:.2f} of 1)"),
        }.items()
        if share > 0
    ]
    return tuple(sorted(parts, key=lambda part: -part.points))


def _bottleneck(theirs: Case, ours: Case) -> tuple[float, str]:
    same = bool(ours.bottleneck) and theirs.bottleneck == ours.bottleneck
    return (1.0, f"the same bottleneck: {ours.bottleneck}") if same else (0.0, "")


def _move(theirs: Case, ours: Case) -> tuple[float, str]:
    if ours.move:
        aligned = moves.alignment(theirs.move, ours.move)
        shared = [role for role, value in ours.move.items() if value * theirs.move.get(role, 0.0) > 0]
        if aligned <= 0 or not shared:
            return 0.0, ""
        said = ", ".join(f"{role} {'larger' if ours.move[role] > 0 else 'smaller'}" for role in shared)
        return aligned, f"the same mesh change: {said}"
    kinds = [kind for kind in ours.changes if kind in theirs.changes]
    if kinds:
        every = set(ours.changes) | set(theirs.changes)
        return len(kinds) / len(every), f"the same kind of change: {', '.join(k.replace('_', ' ') for k in kinds)}"
    roles = [role for role, size in ours.roles.items() if size > 1 and theirs.roles.get(role, 1) > 1]
    if ours.roles and roles:
        every = {r for sizes in (ours.roles, theirs.roles) for r, size in sizes.items() if size > 1}
        return 0.5 * len(roles) / len(every), f"the same axes in use: {', '.join(roles)}"
    return 0.0, ""


def _hardware(theirs: Case, ours: Case) -> tuple[float, str]:
    if not ours.chip or not theirs.chip:
        return 0.0, ""
    share = hardware_likeness(theirs.chip, ours.chip)
    if theirs.chip == ours.chip:
        return share, f"the same chip: {ours.chip}"
    return (share, f"also a {hardware_kind(ours.chip).upper()}") if share >= WORTH_SAYING else (0.0, "")


def _model(theirs: Case, ours: Case) -> tuple[float, str]:
    if ours.model_name and theirs.model_name == ours.model_name:
        return 1.0, f"the same model: {ours.model_name}"
    known = ours.parameters and theirs.parameters
    near = model_likeness(theirs.parameters, ours.parameters) if known else 0.0
    near = near if near >= WORTH_SAYING else 0.0
    if ours.family and theirs.family == ours.family:
        return 0.5 + 0.4 * near, f"the same family of models: {ours.family}"
    return (
        (0.5 * near, f"a model of {theirs.parameters / 1e9:.3g}B parameters") if near and theirs.parameters else (0, "")
    )


def _scale(theirs: Case, ours: Case) -> tuple[float, str]:
    if not ours.chips or not theirs.chips:
        return 0.0, ""
    share = chips_likeness(theirs.chips, ours.chips)
    if share < WORTH_SAYING:
        return 0.0, ""
    return share, "as many chips" if theirs.chips == ours.chips else f"{theirs.chips:,} chips"


@cache
def hardware_kind(chip: str) -> str:
    """`tpu` or `gpu`; empty where the chip is not known."""
    try:
        return get_chip(chip).kind if chip else ""
    except KeyError:
        return ""


def family_of(model_name: str) -> str:
    """The family that a model's name begins with: `llama` of `llama3.1-8b`; empty where it begins otherwise."""
    match = re.match(r"[a-z]+(?:-oss)?", model_name.strip().lower().rsplit("/", 1)[-1])
    return match[0] if match and len(match[0]) > 2 else ""
