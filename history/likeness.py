"""How alike two cases are: a sum of plain parts, each of which says in words what is alike.  Knows no Django."""

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
    if theirs.chip == ours.chip:
        return 1.0, f"the same chip: {ours.chip}"
    if (kind := hardware_kind(ours.chip)) and kind == hardware_kind(theirs.chip):
        one, other = load_chips()[theirs.chip.lower()], load_chips()[ours.chip.lower()]
        wired = one.ici_axes == other.ici_axes
        return (
            (0.6, f"{theirs.chip} has the same interconnect as {ours.chip}")
            if wired
            else (0.4, f"also a {kind.upper()}")
        )
    return 0.0, ""


def _model(theirs: Case, ours: Case) -> tuple[float, str]:
    if ours.model_name and theirs.model_name == ours.model_name:
        return 1.0, f"the same model: {ours.model_name}"
    near = 0.0
    if ours.parameters and theirs.parameters:
        near = max(0.0, 1 - abs(log2(theirs.parameters / ours.parameters)) / 3)
    if ours.family and theirs.family == ours.family:
        return 0.5 + 0.4 * near, f"the same family of models: {ours.family}"
    return (
        (0.5 * near, f"a model of {theirs.parameters / 1e9:.3g}B parameters") if near and theirs.parameters else (0, "")
    )


def _scale(theirs: Case, ours: Case) -> tuple[float, str]:
    if not ours.chips or not theirs.chips:
        return 0.0, ""
    share = max(0.0, 1 - abs(log2(theirs.chips / ours.chips)) / 4)
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
