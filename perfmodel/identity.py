"""Identity of configurations: when two of them are the same run, however they are written.

Start with `key`.  Two configurations with one key place the same arrays on the same chips and run the same program, so
that every page, command and tool gives them one price (docs/architecture.md, *One price*).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import log2

import numpy as np
import numpy.typing as npt

from perfmodel.config import ExperimentConfig, Mesh, MeshSizes, Training
from perfmodel.execution import framework_of
from perfmodel.workload import REMAT_OPEN, micro_batches

#: ((role, size), …), major to minor, inside a slice and across slices.
Placement = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]

#: Distance, in doublings, of a mesh of the same sizes in another order: its axes lie on other links.
DISTANCE_OF_ORDER = 1.0


def placement(mesh: Mesh) -> Placement:
    """Return the mesh as the chips see it: roles in order with their sizes.

    Notation does not count: names of axes, axes of size 1, neighbours of one role, and inside a slice `fsdp` beside
    `data`, which carry the same collectives there.  Across slices they differ: only `fsdp` shards weights.
    """

    def segments(axes: tuple[tuple[str, int], ...], inside: bool) -> tuple[tuple[str, int], ...]:
        joined: list[tuple[str, int]] = []
        for axis, size in axes:
            if size == 1:
                continue
            role = merged_role(mesh.role(axis), inside)
            if joined and joined[-1][0] == role:
                joined[-1] = (role, joined[-1][1] * size)
            else:
                joined.append((role, size))
        return tuple(joined)

    return segments(mesh.ici, True), segments(mesh.dcn, False)


def merged_role(role: str, inside: bool) -> str:
    """Return the role under one name: inside a slice, `data` and `fsdp` carry the same collectives."""
    return "data" if inside and role == "fsdp" else role


def placement_of(sizes: MeshSizes, axis_roles: Mapping[str, str] | None = None) -> Placement:
    """Return `placement` of a mesh as JSON has it."""
    ici, dcn = (tuple((sizes.get(place) or {}).items()) for place in ("ici", "dcn"))
    return placement(Mesh(ici, dcn, axis_roles or {}))


def placement_text(sizes: MeshSizes, axis_roles: Mapping[str, str] | None = None) -> str:
    """Return a placement as one line, `data=8 model=4 | fsdp=2`, for a column of the database."""
    texts = [" ".join(f"{role}={size}" for role, size in side) for side in placement_of(sizes, axis_roles)]
    return " | ".join(text for text in texts) if texts[1] else texts[0]


def mesh_distance(old: Mesh, new: Mesh) -> float:
    """Return how far one mesh is from another: factors of two moved between roles, 0 only for the same placement."""
    one, other = placement(old), placement(new)
    if one == other:
        return 0.0
    moved = sum(
        abs(log2(_size(other[place], role) / _size(one[place], role)))
        for place in (0, 1)
        for role in {role for role, _ in (*one[place], *other[place])}
    )
    return moved / 2.0 or DISTANCE_OF_ORDER


def mesh_distances(home: Mesh, meshes: list[Mesh]) -> npt.NDArray[np.float64]:
    """Return `mesh_distance` from one mesh to many."""
    return np.array([mesh_distance(home, mesh) for mesh in meshes])


def key(config: ExperimentConfig) -> Hashable:
    """Return what tells a configuration from every other one that is another run.

    Micro-batches count by their number, however they were given; settings without effect are left out: virtual stages
    without a pipeline, weight sharding over one shard, the order of XLA flags.  Names and notes are no part of it.
    """
    hardware = config.hardware
    site = tuple(sorted(hardware.overrides.items()))
    return (
        (hardware.chip, hardware.topology, hardware.slices, site),
        placement(config.mesh),
        config.model,
        training_key(config.training, config.mesh),
        framework_of(config),
        config.extra.get("software_year"),
        bool(config.extra.get(REMAT_OPEN)) and config.training.remat == "none",
    )


def training_key(training: Training, mesh: Mesh) -> Hashable:
    """Return the settings of a training that have an effect on this mesh."""
    return (
        training.global_batch,
        training.seq_len,
        training.precision,
        training.optimizer,
        training.weight_sharding if mesh.token_shards > 1 else None,
        training.remat,
        micro_batches(training, mesh),
        training.virtual_stages if mesh.size("pipeline") > 1 else 1,
        training.sequence_parallel if mesh.size("model") > 1 else None,
        training.loss_parallel if mesh.size("model") > 1 else None,
        tuple(sorted(training.xla_flags)),
    )


def _size(segments: tuple[tuple[str, int], ...], role: str) -> int:
    size = 1
    for name, own in segments:
        size *= own if name == role else 1
    return size
