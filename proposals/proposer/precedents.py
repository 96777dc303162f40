"""Precedents: measured optimisations whose likeness to a case supports a candidate.

A precedent says in which direction an axis was moved under which bottleneck on which hardware, and what the step's time
became.  Likeness is a product of plain factors; its weight only ever shifts an estimate towards what was measured.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log2

from perfmodel.config import Mesh
from proposals.plan import Citation


@dataclass(frozen=True)
class Precedent:
    """before, after: axis sizes by canonical role.  time_ratio: time after / before per token (below 1: faster)."""

    id: str
    title: str
    source: str
    chip: str
    chips: int
    bottleneck: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    effect: str
    time_ratio: float
    caveat: str = ""

    def citation(self) -> Citation:
        return Citation("history", self.id, self.title, f"{self.effect}. {self.caveat}".strip(), "")


@cache
def published() -> tuple[Precedent, ...]:
    text = files("proposals.proposer").joinpath("precedents.toml").read_text("utf-8")
    return tuple(Precedent(**row) for row in tomllib.loads(text)["precedent"])


def moves(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Change of every role's size in doublings (log2); roles that stay are absent."""
    roles = set(before) | set(after)
    change = {r: log2(after.get(r, 1) / before.get(r, 1)) for r in roles}
    return {r: d for r, d in change.items() if d}


def sizes_by_role(mesh: Mesh) -> dict[str, int]:
    """Axis sizes over ICI and DCN by canonical role; `fsdp` counts as data."""
    sizes: dict[str, int] = {}
    for axis, size in (*mesh.ici, *mesh.dcn):
        role = mesh.role(axis)
        role = "data" if role == "fsdp" else role
        sizes[role] = sizes.get(role, 1) * size
    return sizes


def likeness(precedent: Precedent, chip: str, chips: int, bottleneck: str, before: Mesh, after: Mesh) -> float:
    """0–1: same bottleneck, same move (direction and size), like hardware.  0 where the move or bottleneck differs."""
    if precedent.bottleneck != bottleneck:
        return 0.0
    theirs = moves(precedent.before, precedent.after)
    ours = moves(sizes_by_role(before), sizes_by_role(after))
    roles = set(theirs) | set(ours)
    norm = (sum(d * d for d in theirs.values()) * sum(d * d for d in ours.values())) ** 0.5
    if not norm:
        return 0.0
    aligned = sum(theirs.get(r, 0.0) * ours.get(r, 0.0) for r in roles) / norm
    if aligned <= 0:
        return 0.0
    size_gap = abs(sum(map(abs, ours.values())) - sum(map(abs, theirs.values()))) / 2
    scale_gap = abs(log2(chips / precedent.chips))
    family = 1.0 if chip == precedent.chip else 0.6
    return float(aligned**4 * family * 0.35**size_gap * 0.8**scale_gap)
