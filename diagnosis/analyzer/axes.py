"""Which mesh axes a group of devices spans.

Device ids are laid row-major over the mesh, major axis first, slice by slice (`perfmodel.config`); where that does not
explain a group, the hybrid layout is tried in which every axis is split into its DCN part and its ICI part.

Process groups are matched by their ranks, which lie on the mesh as device ids do (Megatron's order of ranks when the
configuration lists tensor parallelism last), and where they leave it open by what the program calls them: as
Megatron-Core's parallel_state (`TENSOR_MODEL_PARALLEL_GROUP`, `DATA_PARALLEL_GROUP_WITH_CP`, …) or PyTorch's DeviceMesh
(`mesh_tp`, `mesh_dp_shard`, `mesh_fsdp`, …).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from experiments.hlo.groups import Groups, IntArray
from experiments.step_profile import Op
from perfmodel.config import Mesh


@dataclass(frozen=True)
class AxisMatch:
    """Axes a collective runs on.  ici: names, major to minor; dcn: does it cross slices; participants per group.

    exact: the group is the whole product of these axes (False: part of an axis, or a pattern the mesh does not
    explain).
    """

    ici: tuple[str, ...]
    dcn: bool
    participants: int
    exact: bool = True
    source: str = "replica_groups"

    @property
    def label(self) -> str | tuple[str, ...] | None:
        """The contract's `mesh_axis`."""
        if self.dcn:
            return "dcn"
        if not self.ici:
            return None
        return self.ici[0] if len(self.ici) == 1 else self.ici


Dimension = tuple[str, str, int]  # (network, axis, size)


class MeshAxes:
    """Answers `match(groups)` for one mesh; remembers what it has answered."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.chips = mesh.ici_product * mesh.dcn_product
        self._answers: dict[int, tuple[Groups, AxisMatch | None]] = {}

    def _layouts(self) -> list[list[Dimension]]:
        dcn: list[Dimension] = [("dcn", axis, size) for axis, size in self.mesh.dcn]
        ici: list[Dimension] = [("ici", axis, size) for axis, size in self.mesh.ici]
        layouts = [dcn + ici]
        across = dict(self.mesh.dcn)
        if self.mesh.dcn_product > 1 and set(across) <= {axis for axis, _ in self.mesh.ici}:
            hybrid: list[Dimension] = []
            for axis, size in self.mesh.ici:
                hybrid += [("dcn", axis, across.get(axis, 1)), ("ici", axis, size)]
            layouts.append(hybrid)
        return layouts

    def everyone(self) -> AxisMatch:
        axes = tuple(axis for axis, size in self.mesh.ici if size > 1)
        return AxisMatch(axes, self.mesh.dcn_product > 1, self.chips)

    def match(self, groups: Groups) -> AxisMatch | None:
        """The axes that vary inside the groups; None where nothing varies or the ids do not belong to this mesh."""
        known = self._answers.get(id(groups))
        if known is None:  # the Groups is kept with its answer, so that its id stays its own
            known = (groups, self._match(groups))
            self._answers[id(groups)] = known
        return known[1]

    def _match(self, groups: Groups) -> AxisMatch | None:
        if groups.everyone:
            return self.everyone() if self.chips > 1 else None
        if named := self._by_name(groups):
            return named
        if not groups.members.size or groups.size < 2:
            return None
        devices = groups.devices or int(groups.members.max()) + 1
        cores = 1
        if devices > self.chips:
            if devices % self.chips:
                return None
            cores = devices // self.chips
        best: tuple[tuple[bool, int], AxisMatch] | None = None
        for layout in self._layouts():
            varying = [dim for dim, differs in zip(layout, _varying(layout, groups, cores), strict=True) if differs]
            if not varying:
                continue
            size = prod(size for _, _, size in varying)
            exact = groups.pairs or groups.size in (size, size * cores)
            ici = tuple(axis for network, axis, _ in varying if network == "ici")
            dcn = any(network == "dcn" for network, _, _ in varying)
            participants = size if groups.pairs else max(1, groups.size // (cores if groups.size > size else 1))
            source = "source_target_pairs" if groups.pairs else "replica_groups"
            match = AxisMatch(ici, dcn, participants, exact, source)
            quality = (not exact, len(varying) if groups.pairs else 0)
            if best is None or quality < best[0]:
                best = (quality, match)
        return best[1] if best else None

    def _by_name(self, groups: Groups) -> AxisMatch | None:
        """A mesh notation with our axis names gives it directly, in whatever axis order."""
        if not groups.named or self.mesh.dcn_product > 1:
            return None
        stated, ours = dict(groups.mesh_axes), dict(self.mesh.ici)
        if any(ours.get(name) != stated.get(name) for name in groups.named):
            return None
        axes = tuple(axis for axis, size in self.mesh.ici if axis in groups.named and size > 1)
        return AxisMatch(axes, False, groups.size, source="mesh name") if axes else None

    def of_size(self, participants: int) -> AxisMatch | None:
        """The only ICI axis with so many chips, if no other axis or product of axes has that size."""
        axes = [(axis, size) for axis, size in self.mesh.ici if size > 1]
        options = []
        for chosen in range(1, 2 ** len(axes)):
            subset = [axis for index, axis in enumerate(axes) if chosen >> index & 1]
            if prod(size for _, size in subset) == participants:
                options.append(tuple(axis for axis, _ in subset))
        if len(options) != 1 or self.mesh.dcn_product > 1:
            return None
        return AxisMatch(options[0], False, participants, source="group size")

    def only_axis(self) -> AxisMatch | None:
        """Where a single axis is larger than one, every collective runs on it."""
        axes = [(axis, size) for axis, size in self.mesh.ici if size > 1]
        if len(axes) != 1 or self.mesh.dcn_product > 1:
            return None
        return AxisMatch((axes[0][0],), False, axes[0][1], source="only axis")


def positions(mesh: Mesh, role: str, devices: int) -> IntArray | None:
    """Position of every device along the axes of a role, in the order of device ids: shape (devices,).

    None where the devices are no whole number per chip, or no axis of that role is larger than one.
    """
    layout = [(axis, size) for axis, size in (*mesh.dcn, *mesh.ici)]
    chips = prod(size for _, size in layout)
    if chips < 2 or devices % chips:
        return None
    rows = _coordinates(tuple(size for _, size in layout))
    place = np.zeros(chips, dtype=np.int64)
    for (axis, size), row in zip(layout, rows, strict=True):
        if mesh.role(axis) == role:
            place = place * size + row
    return np.repeat(place, devices // chips) if place.any() else None


def _varying(layout: list[Dimension], groups: Groups, cores: int) -> list[bool]:
    ids = groups.members // cores
    coordinates = _coordinates(tuple(size for _, _, size in layout))
    if ids.max() >= coordinates.shape[1]:
        return [False] * len(layout)
    varying = []
    for row in coordinates:
        values = row[ids]
        varying.append(bool((values.max(axis=1) != values.min(axis=1)).any()))
    return varying


@lru_cache(maxsize=64)
def _coordinates(sizes: tuple[int, ...]) -> IntArray:
    """Coordinates of every device: shape (axes, devices)."""
    return np.stack(np.unravel_index(np.arange(prod(sizes)), sizes)) if sizes else np.zeros((0, 1), dtype=np.int64)


#: Roles of the axes by the words in a group's name, most specific first.
_ROLES = (
    (re.compile(r"expert.*data"), ("data", "fsdp", "replica")),
    (re.compile(r"expert.*tensor"), ("model",)),
    (re.compile(r"expert|\bep\b"), ("expert",)),
    (re.compile(r"tensor.*data.*cp|tensor.*context.*data"), ("model", "data", "fsdp", "seq")),
    (re.compile(r"tensor.*data"), ("model", "data", "fsdp")),
    (re.compile(r"tensor.*context"), ("model", "seq")),
    (re.compile(r"data.*with cp|dp shard cp|dp cp"), ("data", "fsdp", "replica", "seq")),
    (re.compile(r"pipeline|\bpp\b"), ("pipeline",)),
    (re.compile(r"context|sequence|\bcp\b|\bsp\b|ulysses"), ("seq",)),
    (re.compile(r"tensor|\btp\b"), ("model",)),
    (re.compile(r"replicate|\bhsdp\b"), ("replica", "data")),
    (re.compile(r"\bdata|\bdp\b|fsdp|shard"), ("data", "fsdp", "replica")),
)


def of_process_group(op: Op, mesh: MeshAxes | None) -> tuple[AxisMatch | None, int | None]:
    """(axes, participants) of a collective that states its process group; None where that tells nothing."""
    size = len(op.groups[0]) if op.groups else None
    if mesh is None or size == 1:
        return None, size
    by_rank = _by_ranks(op, mesh)
    if by_rank is not None and by_rank.exact:
        return by_rank, size
    by_name = _by_name(op.group_name, mesh, size)
    return by_name or by_rank, size


def _by_ranks(op: Op, mesh: MeshAxes) -> AxisMatch | None:
    if not op.groups:
        return None
    size = min(len(group) for group in op.groups)
    members = np.array([group[:size] for group in op.groups], dtype=np.int64)
    if not members.size or int(members.max()) >= mesh.chips:
        return None  # ranks of another cluster than the configured one
    match = mesh.match(Groups(members))
    return replace(match, source="process group") if match else None


def _by_name(name: str, mesh: MeshAxes, size: int | None) -> AxisMatch | None:
    text = re.sub(r"[_\W]+", " ", name.lower()).strip()
    roles = next((roles for words, roles in _ROLES if words.search(text)), None)
    if roles is None or mesh.mesh.dcn_product > 1:
        return None
    axes = [(axis, length) for axis, length in mesh.mesh.ici if length > 1 and mesh.mesh.role(axis) in roles]
    if not axes or (size is not None and prod(length for _, length in axes) != size):
        return None
    return AxisMatch(tuple(axis for axis, _ in axes), False, prod(n for _, n in axes), source="process group's name")
