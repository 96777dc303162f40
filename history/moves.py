"""What a change did to the mesh, by the role of its axes.  Knows no Django."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod, sqrt

from history.record import Record, Side
from perfmodel.config import ROLE_SYNONYMS


def role_sizes(side: Side, *, fsdp_as_data: bool = False) -> dict[str, int]:
    """Size of each canonical role over ICI and DCN; empty where the side's mesh is not known.

    fsdp_as_data: `fsdp` shards the batch as `data` does and is counted with it, as the Proposer does.
    """
    sizes: dict[str, int] = {}
    for axes in (side.mesh or {}).values():
        for axis, size in axes.items():
            role = side.axis_roles.get(axis, axis)
            role = ROLE_SYNONYMS.get(role, role)
            role = "data" if fsdp_as_data and role == "fsdp" else role
            sizes[role] = sizes.get(role, 1) * size
    return sizes


def doublings(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Change of every role's size in doublings (log2 of after / before); roles that stay are absent."""
    roles = dict.fromkeys([*before, *after])
    change = {role: log2(after.get(role, 1) / before.get(role, 1)) for role in roles}
    return {role: value for role, value in change.items() if value}


def move(record: Record) -> dict[str, float]:
    """The move of the mesh in doublings by role; empty where a mesh is not known or none of its roles changed size."""
    before, after = role_sizes(record.before), role_sizes(record.after)
    return doublings(before, after) if before and after else {}


def signs(moved: Mapping[str, float]) -> list[str]:
    """The direction of each role that moved, sorted: `data+`, `seq-`."""
    return sorted(f"{role}{'+' if value > 0 else '-'}" for role, value in moved.items())


def alignment(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """-1 to 1: cosine of two moves; 0 where one of them moves nothing."""
    norm = sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))
    return sum(value * other.get(role, 0.0) for role, value in one.items()) / norm if norm else 0.0


def chips_of(side: Side) -> int | None:
    """Product of all axes; None where the mesh is not known."""
    return None if side.mesh is None else prod(size for axes in side.mesh.values() for size in axes.values())
