"""Whole meshes from a few sizes that somebody names: axes that are not specified keep theirs, or one of them takes the
rest of the chips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from perfmodel.config import ROLE_SYNONYMS, Mesh
from perfmodel.space import insert_axis

#: Largest size of an axis that anybody means.
MOST = 10**6
#: What an axis of a role may be called beside the role's own name.
ROLE_WORDS = {
    "replica": "replica", "replicas": "replica", "replicate": "replica", "dp_replicate": "replica", "data": "data",
    "dp": "data", "ddp": "data", "fsdp": "fsdp", "dp_shard": "fsdp", "zero3": "fsdp", "seq": "seq", "sequence": "seq",
    "sp": "seq", "context": "seq", "cp": "seq", "model": "model", "tensor": "model", "tp": "model", "mp": "model",
    "expert": "expert", "experts": "expert", "ep": "expert", "pipeline": "pipeline", "pipe": "pipeline",
    "pp": "pipeline", "stage": "pipeline", "stages": "pipeline",
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Sizes as somebody named them.  ici, dcn: by axis; factors: by what an axis is multiplied; positional: in the
    order of the axes, as in 32x8."""

    ici: Mapping[str, int] = field(default_factory=dict)
    dcn: Mapping[str, int] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    positional: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ici or self.dcn or self.factors or self.positional)


@dataclass(frozen=True)
class CompletedMesh:
    """meshes: {"ici": …, "dcn": …} that the sizes may mean, the least changed first.  axes: those that were not
    specified and changed.  problem: a sentence where no mesh fits."""

    meshes: tuple[dict[str, dict[str, int]], ...]
    axes: tuple[str, ...] = ()
    problem: str = ""


def axis_of(mesh: Mesh, word: str) -> str | None:
    """The axis that a word means: by its own name, else by its role; a role that the mesh lacks is named by itself.

    `data` means an fsdp axis, and the other way round, where the mesh has only one of the two.  None: no axis.
    """
    word = word.strip().lower()
    names = [axis for axis, _ in (*mesh.ici, *mesh.dcn)]
    for axis in names:
        if axis.lower() == word:
            return axis
    role = ROLE_WORDS.get(word)
    if role is None:
        return None
    for wanted in (role, *({"data": ("fsdp",), "fsdp": ("data",)}.get(role, ()))):
        same = [axis for axis in names if mesh.role(axis) == ROLE_SYNONYMS.get(wanted, wanted)]
        if same:
            return max(same, key=lambda axis: dict(mesh.ici).get(axis, 1))
    return role


def fill(sizes: Sizes, base: Mapping[str, Mapping[str, int]], chips: int, mesh: Mesh) -> CompletedMesh:
    """Whole meshes over `chips` of a slice with these sizes.

    base: {"ici": …, "dcn": …} that is changed; axes that are not specified stay as there where the product allows it.
    """
    ran = dict(base["ici"])
    dcn = {**base.get("dcn", {}), **sizes.dcn}
    if sizes.dcn and prod(sizes.dcn.values()) == prod(base.get("dcn", {}).values()):
        dcn = dict(sizes.dcn)  # all slices are named, and no other axis crosses them
    named = {axis: size for axis, size in sizes.ici.items() if size > 1 or axis in ran}
    for axis, factor in sizes.factors.items():
        size = ran.get(axis, 1) * factor
        if size < 1 or size != int(size):
            return CompletedMesh(
                (), problem=f"The {axis} axis has size {ran.get(axis, 1)} and cannot be divided further."
            )
        named[axis] = int(size)
    if sizes.positional:
        order = _order(ran, len(sizes.positional), mesh)
        if order is None:
            axes = " · ".join(ran)
            return CompletedMesh(
                (), problem=f"{len(sizes.positional)} sizes do not say which of the axes {axes} is which."
            )
        named |= dict(zip(order, sizes.positional, strict=True))
        ran |= {axis: 1 for axis in ran if axis not in order}
    start = _start(ran, named, mesh)
    if prod(start.values()) == chips or sizes.positional:
        return CompletedMesh(({"ici": start, "dcn": dcn},))
    free = [axis for axis in ran if axis not in named]
    ways = sorted(_ways(named, free, ran, chips, mesh), key=lambda way: _distance(way, ran))
    if not ways:  # what the user named is whole, or fits no slice: the rule `chips` says so where it is priced
        return CompletedMesh(({"ici": {axis: named.get(axis, 1) for axis in start}, "dcn": dcn},))
    meshes = tuple({"ici": {axis: {**ran, **way}[axis] for axis in start}, "dcn": dcn} for way in ways)
    return CompletedMesh(meshes, tuple(axis for axis in free if ways[0][axis] != ran[axis]))


def _start(ran: Mapping[str, int], named: Mapping[str, int], mesh: Mesh) -> dict[str, int]:
    """Return the sizes of all axes, major to minor: as they were named where that is all of them, else each axis that
    the mesh lacks at its usual place."""
    sizes = {**ran, **named}
    if all(axis in named for axis, size in sizes.items() if size > 1):
        return {**named, **sizes}
    names = list(ran)
    for axis in named:
        if axis not in ran:
            insert_axis(names, axis, mesh)
    return {axis: sizes[axis] for axis in names}


def _order(ran: Mapping[str, int], count: int, mesh: Mesh) -> list[str] | None:
    """The axes that so many sizes mean: all of them, or all but replicas, or all that are wide."""
    every = list(ran)
    for axes in (every, [a for a in every if mesh.role(a) != "replica"], [a for a in every if ran[a] > 1]):
        if len(axes) == count:
            return axes
    return None


def _ways(
    named: Mapping[str, int], free: Sequence[str], ran: Mapping[str, int], chips: int, mesh: Mesh
) -> Iterator[dict[str, int]]:
    """Sizes of the axes that were not specified.  One axis takes the rest where one can; replicas and stages stay."""
    left = prod(named.values())
    if left < 1 or chips % left:
        return
    movable = [axis for axis in free if mesh.role(axis) not in ("replica", "pipeline") or ran[axis] > 1]
    fixed = {axis: ran[axis] for axis in free if axis not in movable}
    rest, over = divmod(chips, left * prod(fixed.values()))
    if over:
        return
    single = []
    for axis in movable:
        others = {other: ran[other] for other in movable if other != axis}
        size, over = divmod(rest, prod(others.values()))
        if not over and size >= 1:
            single.append({**named, **fixed, **others, axis: size})
    yield from single
    if single or len(movable) > 3:
        return
    for each in product(*([n for n in range(1, rest + 1) if rest % n == 0] for _ in movable)):
        if prod(each) == rest:
            yield {**named, **fixed, **dict(zip(movable, each, strict=True))}


def _distance(way: Mapping[str, int], ran: Mapping[str, int]) -> tuple[float, ...]:
    """How far a mesh is from another: axes changed, then the ratio of sizes."""
    changed = [max(size, ran.get(axis, 1)) / min(size, ran.get(axis, 1)) for axis, size in way.items()]
    return (float(sum(item > 1 for item in changed)), prod(changed))
