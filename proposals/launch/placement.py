"""A mesh of chips as a mesh of JAX devices: two per chip where the chip has two cores, and what the links allow.

Sources: jax/_src/mesh_utils.py (which logical meshes fill whole torus dimensions, the core of a chip as the last
dimension of a TPU7x or v3 slice); scaling book 2.3 (devices per chip).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

import numpy as np

from perfmodel import legality
from perfmodel.chips import Chip, get_chip
from perfmodel.config import ExperimentConfig, Mesh, micro_batches
from perfmodel.topology import lay_out, physical_dims
from perfmodel.workload import recipe
from proposals.launch.file import NotExpressible

#: Roles that take the second device of a chip, in this order: batch shards cost least.
_PAIR_ROLES = ("fsdp", "data", "replica", "seq", "model")


#: Said where the recomputation of a GPU run is a default that the performance model does not take at its word.
OPEN_REMAT = (
    "The configuration does not set rematerialisation; the prediction assumes as much as the step needs to fit. "
    "Recompute more if it runs out of memory."
)


@dataclass(frozen=True)
class Placement:
    """A configuration's mesh over JAX devices.

    mesh: sizes in devices.  devices_per_slice, devices: JAX devices.  pair_axis: the axis doubled because a chip is two
    devices, empty where it is one.  micro_batches: per optimizer step.
    """

    config: ExperimentConfig
    chip: Chip
    mesh: Mesh
    devices_per_slice: int
    pair_axis: str
    micro_batches: int

    @property
    def devices(self) -> int:
        return self.devices_per_slice * self.config.hardware.slices

    @property
    def shards_weights(self) -> bool:
        return self.config.training.weight_sharding == "fsdp"

    @property
    def batch_per_micro_batch(self) -> int | None:
        batch = self.config.training.global_batch
        return batch // self.micro_batches if batch else None

    @property
    def physical(self) -> tuple[int, ...]:
        """Torus dimensions of a TPU slice as JAX sees them: the two cores of a chip are a dimension of their own."""
        dims = tuple(self.config.hardware.topology)
        return (*dims, self.chip.devices_per_chip) if self.chip.devices_per_chip > 1 else dims

    @property
    def sequence_parallel(self) -> bool:
        """Whether a tensor axis of GPUs also shards activations as wide as the model, as the prediction takes it."""
        return bool(recipe(self.config.training, self.config.extra, "tpu")["sequence_parallel"][0] > 0)

    @property
    def remat_is_open(self) -> bool:
        return bool(self.config.extra.get("remat_open")) and self.config.training.remat == "none"

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.pair_axis:
            return ()
        before, after = dict(self.config.mesh.ici).get(self.pair_axis, 1), dict(self.mesh.ici)[self.pair_axis]
        return (
            f"A {self.chip.title} chip is two JAX devices, and the mesh of the proposal counts chips; the axis "
            f"{self.pair_axis!r} is {after} devices instead of {before} chips. The prediction treats a chip as one "
            "device.",
        )


def place(config: ExperimentConfig) -> Placement:
    """The mesh over devices.  Raises NotExpressible where the second device of a chip fits on no axis."""
    chip = get_chip(config.hardware.chip)
    mesh, pair_axis = config.mesh, ""
    if chip.kind == "tpu" and chip.devices_per_chip > 1:
        mesh, pair_axis = _with_pairs(config, chip.devices_per_chip)
    count = max(1, round(micro_batches(config.training, config.mesh)))
    return Placement(config, chip, mesh, config.hardware.chips_per_slice * chip.devices_per_chip, pair_axis, count)


def _with_pairs(config: ExperimentConfig, per_chip: int) -> tuple[Mesh, str]:
    axes = config.mesh.ici
    known = [axis for role in _PAIR_ROLES for axis, _ in axes if config.mesh.role(axis) == role]
    # An axis the mesh does not have may be added at its place: the batch outermost, tensor innermost.
    added = [name for name in ("data", "model") if name not in dict((*axes, *config.mesh.dcn))]
    for axis in (*known, *added):
        grown = tuple((name, size * per_chip if name == axis else size) for name, size in axes)
        if axis not in known:
            grown = ((axis, per_chip), *axes) if axis == "data" else (*axes, (axis, per_chip))
        mesh = replace(config.mesh, ici=grown)
        if not _breaks(replace(config, mesh=mesh), config):
            return mesh, axis
    raise NotExpressible(
        f"A {get_chip(config.hardware.chip).title} chip is two JAX devices, and no axis of {config.mesh.text()} can be "
        "doubled: neither batch, sequence nor heads can be split further."
    )


def _breaks(config: ExperimentConfig, before: ExperimentConfig) -> bool:
    """Whether doubling an axis breaks a rule of divisibility that held."""
    training = config.training
    if training.micro_batch:  # the same micro-batches over twice the groups
        count = max(1, round(micro_batches(before.training, before.mesh)))
        config = replace(config, training=replace(training, micro_batch=None, grad_accum=count))
    held = legality.indivisible(before) | {"devices": True}  # it is these devices that are laid here
    return any(broken and not held[rule] for rule, broken in legality.indivisible(config).items())


def must_split(sizes: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether `mesh_utils.create_device_mesh` refuses these axes unless it may split a torus dimension.

    sizes: logical axes, the one that communicates most last; dims: of the slice.  The search is JAX's own: from the
    last axis on, the largest subset of free dimensions whose product is the size.
    """
    free = list(dims)
    for size in reversed(sizes):
        dimensions = next(
            (
                chosen
                for count in range(len(free), 0, -1)
                for chosen in combinations(range(len(free)), count)
                if prod(free[i] for i in chosen) == size
            ),
            None,
        )
        if dimensions is None:
            if size > 1:
                return True
            continue
        free = [0 if i in dimensions else n for i, n in enumerate(free)]
    return False


def granules(config: ExperimentConfig, per_granule: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ICI axes of a GPU mesh as (across granules, inside a granule), granules of `per_granule` neighbouring GPUs.

    The minor axes lie inside a granule.  Raises NotExpressible where an axis straddles unevenly.
    """
    total = config.hardware.chips_per_slice
    inside = min(per_granule, total)
    sizes = np.array([[size for _, size in config.mesh.ici]], dtype=np.int64)
    if total % inside:
        raise NotExpressible(f"{total} GPUs do not fill groups of {inside}.")
    layout = lay_out(sizes, (total // inside, inside))
    if not bool(layout.regular[0]):
        raise NotExpressible(f"{config.mesh.text()} does not divide evenly into groups of {inside} GPUs.")
    outer, inner = layout.extents[0, :, 0], layout.extents[0, :, 1]
    return tuple(int(n) for n in outer), tuple(int(n) for n in inner)


def nvlink_domain(config: ExperimentConfig) -> int:
    """GPUs of one NVLink domain of the configuration."""
    return physical_dims(get_chip(config.hardware.chip), config.hardware.topology)[1]


@dataclass(frozen=True)
class ToolAxes:
    """A mesh by the axes of a tool.  inside, across: sizes inside of a slice and across them; on GPUs, of a group of
    neighbours.  order: of the mesh, where the tool has another.  weights: axes that hold copies of weights in the
    configuration, and shards of them in the tool."""

    inside: dict[str, int]
    across: dict[str, int]
    order: tuple[str, ...]
    weights: tuple[str, ...]


def tool_axes(placed: Placement, names: Mapping[str, str], group: int) -> ToolAxes:
    """Return the sizes of a tool's axes.  names: of the tool by our role, in its order; group: neighbouring GPUs.

    Both tools shard weights over `fsdp` and keep copies on `data`.  Raises NotExpressible as `granules` does.
    """
    mesh = placed.mesh

    def name(axis: str, is_across: bool = False) -> str:
        role = mesh.role(axis)
        if role in ("data", "fsdp"):
            return names["fsdp" if placed.shards_weights and (role == "fsdp" or not is_across) else "data"]
        return names["data" if role == "replica" else role]

    inside, across = dict.fromkeys(names.values(), 1), dict.fromkeys(names.values(), 1)
    for axis, size in mesh.dcn:
        across[name(axis, True)] *= size
    ones = (1,) * len(mesh.ici)
    sizes = tuple(size for _, size in mesh.ici)
    outer, inner = granules(placed.config, group) if placed.chip.kind == "gpu" else (ones, sizes)
    for (axis, _), out, within in zip(mesh.ici, outer, inner, strict=True):
        across[name(axis)] *= out
        inside[name(axis)] *= within
    order = tuple(name(axis) for axis, size in mesh.ici if size > 1)
    shared = [axis for axis, size in (*mesh.ici, *mesh.dcn) if size > 1 and mesh.role(axis) in ("seq", "expert")]
    return ToolAxes(
        inside, across, order if order != tuple(sorted(order, key=list(inside).index)) else (),
        () if placed.shards_weights else tuple(dict.fromkeys(shared)),
    )  # fmt: skip
