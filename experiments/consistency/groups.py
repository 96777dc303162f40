"""Groups of devices that communicate, and the meshes that explain them.

Devices are numbered row-major over the mesh, major axis first (`perfmodel.config`).  A group that the product of some
axes gives differs from its neighbours only along them, so it is a set of offsets: sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from math import prod

import numpy as np

from experiments.hlo import groups as hlo_groups
from experiments.hlo.groups import Groups, IntArray
from experiments.step_profile import Op, StepProfile
from perfmodel.config import Mesh

#: (size, stride), minor first: devices start + i·stride for i < size, for every combination.
Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pattern:
    """One way in which devices are grouped.  runs: None where the offsets are no regular grid.

    devices: of the whole program; key: the groups that were stated, as sorted rows of device ids.  share: of the time
    of all collectives whose groups are known.  op: the longest of them.  names: mesh axes as the program itself calls
    them, where it says.  ring: from source-target pairs: `size` is what one ring goes through.
    """

    size: int
    runs: Runs | None
    devices: int
    share: float
    op: str
    op_name: str
    key: tuple[tuple[int, ...], ...]
    ring: bool = False
    names: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        """`16 devices, stride 4`."""
        if self.runs is None:
            return f"{self.size:,} devices in an irregular pattern"
        strides = " and ".join(f"{stride:,}" for _, stride in self.runs)
        return f"{self.size:,} devices, stride {strides}"


@dataclass(frozen=True)
class Explained:
    """How a mesh explains a pattern.  axes: whose product it is; whole: False where it is a part of their product."""

    axes: tuple[str, ...]
    whole: bool


def collective_ops(profile: StepProfile) -> list[tuple[Op, Groups]]:
    """Ops that state who communicates with whom, longest first."""
    collectives = []
    for op in profile.ops:
        if op.groups:
            groups = _of_ranks(op.groups)
        elif "replica_groups" in op.hlo or "source_target_pairs" in op.hlo:
            groups = hlo_groups.parse(op.hlo)
        else:
            continue
        if groups is not None and not groups.everyone and groups.members.size:
            collectives.append((op, groups))
    return collectives


def _of_ranks(rows: Sequence[Sequence[int]]) -> Groups | None:
    """Process groups as their ranks; those that were recorded, which need not be all of them."""
    sizes = {len(row) for row in rows}
    return Groups(np.array(rows, dtype=np.int64)) if len(sizes) == 1 else None


def patterns(profile: StepProfile) -> tuple[Pattern, ...]:
    """The distinct groups of the longest-running program with collectives, by descending share of their time.

    A whole-program group of everybody (`{}`) tells nothing and is left out, as is one of a single device.
    """
    listed = collective_ops(profile)
    if not listed:
        return ()
    by_program: dict[str, float] = {}
    for op, _ in listed:
        by_program[op.program] = by_program.get(op.program, 0.0) + op.self_time_s
    program = max(by_program, key=lambda name: by_program[name])
    rows: dict[tuple[bool, tuple[tuple[int, ...], ...]], list[tuple[Op, Groups]]] = {}
    for op, groups in listed:
        if op.program != program:
            continue
        key = pattern_key(groups)
        if key and len(key[0]) > 1:
            rows.setdefault((groups.pairs, key), []).append((op, groups))
    total = sum(op.self_time_s for group in rows.values() for op, _ in group) or 1.0
    devices = max((max(max(row) for row in key) + 1 for _, key in rows), default=0)
    devices = max([devices, *(groups.devices or 0 for group in rows.values() for _, groups in group)])
    devices = max(devices, profile.device.world_size or 0)
    every = []
    for (ring, key), group in rows.items():
        longest = max(group, key=lambda pair: pair[0].self_time_s)
        named = next((groups for _, groups in group if _has_own_names(groups)), None)
        every.append(
            Pattern(
                size=len(key[0]),
                runs=runs_of(key[0]),
                devices=devices,
                share=sum(op.self_time_s for op, _ in group) / total,
                op=longest[0].name,
                op_name=longest[0].op_name,
                key=key,
                ring=ring,
                names=named.mesh_axes if named else (),
            )
        )
    return tuple(sorted(every, key=lambda pattern: -pattern.share))


def pattern_key(groups: Groups) -> tuple[tuple[int, ...], ...]:
    """The groups as sorted rows of device ids; of source-target pairs what they join."""
    return _rings(groups.members) if groups.pairs else _rows(groups.members)


def _has_own_names(groups: Groups) -> bool:
    """Shardy calls axes that it made up `axis_0`, …; a program's own names are worth keeping."""
    return bool(groups.mesh_axes) and not any(name.startswith(("axis_", "_axis")) for name, _ in groups.mesh_axes)


def _rows(members: IntArray) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(tuple(sorted(int(device) for device in row)) for row in members))


def _rings(source_target: IntArray) -> tuple[tuple[int, ...], ...]:
    """Devices that source-target pairs join, as groups."""
    after = {int(source): int(target) for source, target in source_target}
    parent = {device: device for device in {*after, *after.values()}}

    def root(device: int) -> int:
        while parent[device] != device:
            parent[device] = parent[parent[device]]
            device = parent[device]
        return device

    for source, target in after.items():
        parent[root(source)] = root(target)
    joined: dict[int, list[int]] = {}
    for device in parent:
        joined.setdefault(root(device), []).append(device)
    rows = tuple(sorted(tuple(sorted(row)) for row in joined.values() if len(row) > 1))
    sizes = {len(row) for row in rows}
    return rows if len(sizes) == 1 else ()


def runs_of(group: Sequence[int]) -> Runs | None:
    """Sizes and strides, minor first, of a group of device ids; None where it is no regular grid.

    Neighbouring runs are one: devices 0…7 are ((8, 1),).
    """
    return _runs([device - min(group) for device in sorted(group)])


def _runs(offsets: list[int]) -> Runs | None:
    if len(offsets) < 2:
        return ()
    stride, size = offsets[1], 1
    while size < len(offsets) and offsets[size] == size * stride:
        size += 1
    bases = offsets[::size]
    if offsets != [base + index * stride for base in bases for index in range(size)]:
        return None
    rest = _runs(bases)
    return None if rest is None else ((size, stride), *rest)


def explain(mesh: Mesh, pattern: Pattern) -> Explained | None:
    """The axes whose product gives the pattern, whole or in part; None where none does.

    Slices stand before chips; where that does not explain it, each axis is split into its DCN and its ICI part.  Cores
    of one chip that are devices of their own count as an axis inside it.
    """
    best: Explained | None = None
    for layout in _layouts(mesh, pattern.devices):
        sizes = tuple(size for _, size in layout)
        for count in range(1, len(layout) + 1):
            for chosen in combinations(range(len(layout)), count):
                size = prod(sizes[at] for at in chosen)
                if size == pattern.size and set(pattern.key) <= _groups_of(sizes, chosen):
                    return Explained(tuple(dict.fromkeys(layout[at][0] for at in chosen)), True)
        if best is None and pattern.runs is not None and (axes := _inside(layout, pattern)):
            best = Explained(axes, False)
    return best


def _layouts(mesh: Mesh, devices: int) -> list[list[tuple[str, int]]]:
    chips = mesh.ici_product * mesh.dcn_product
    if not chips or devices % chips:
        return []
    cores = [("core", devices // chips)] if devices > chips else []
    dcn = [(axis, size) for axis, size in mesh.dcn if size > 1]
    ici = [(axis, size) for axis, size in mesh.ici if size > 1]
    layouts = [dcn + ici + cores]
    across = dict(mesh.dcn)
    if dcn and set(across) <= {axis for axis, _ in mesh.ici}:
        hybrid = [
            part for axis, size in mesh.ici for part in ((axis, across.get(axis, 1)), (axis, size)) if part[1] > 1
        ]
        layouts.append(hybrid + cores)
    return layouts


@lru_cache(maxsize=512)
def _groups_of(sizes: tuple[int, ...], chosen: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
    """All groups of devices that differ along the chosen dimensions only."""
    ids = np.arange(prod(sizes), dtype=np.int64).reshape(sizes)
    rest = [at for at in range(len(sizes)) if at not in chosen]
    return frozenset(_rows(ids.transpose(rest + list(chosen)).reshape(-1, prod(sizes[at] for at in chosen))))


def _inside(layout: list[tuple[str, int]], pattern: Pattern) -> tuple[str, ...]:
    """The one axis of which the pattern is an equal part; empty where it is not inside one."""
    runs = pattern.runs or ()
    if len(runs) != 1:
        return ()
    size, step = runs[0]
    low = 1
    for axis, length in reversed(layout):
        high = low * length
        if low <= step and step * size <= high and step % low == 0 and high % (step * size) == 0:
            return (axis,)
        low = high
    return ()


def suggested_axes(group_patterns: Sequence[Pattern]) -> list[tuple[int, tuple[Pattern, ...]]]:
    """Sizes of mesh axes, major to minor, that give all regular patterns, with the patterns that move along each.

    Every edge of a run is an edge between two axes.  Empty where the edges do not divide each other, or none is known.
    """
    regular = [pattern for pattern in group_patterns if pattern.runs is not None]
    if not regular:
        return []
    devices = regular[0].devices
    edges = {1, devices} | {edge for p in regular for size, stride in p.runs or () for edge in (stride, stride * size)}
    chain = sorted(edges)
    if any(high % low for low, high in pairwise(chain)):
        return []
    axes = []
    for low, high in pairwise(chain):
        along = tuple(
            p for p in regular if any(stride <= low and high <= stride * size for size, stride in p.runs or ())
        )
        axes.append((high // low, along))
    return axes[::-1]
