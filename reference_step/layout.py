"""How arrays lie on the mesh: from groups of axes (`sharded_arrays`) to `NamedSharding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfmodel.config import ExperimentConfig
from reference_step import sharded_arrays
from reference_step.sharded_arrays import Array

Group = str | None
"""A name of `sharded_arrays.GROUPS`, or None for a dimension that stays whole."""


def axis_sizes(config: ExperimentConfig) -> dict[str, int]:
    """Size of every axis of the device mesh, major to minor: DCN axes larger than one, then all ICI axes."""
    far = sharded_arrays.far_names(config.mesh)
    return {far[axis]: size for axis, size in config.mesh.dcn if axis in far} | dict(config.mesh.ici)


def device_mesh(config: ExperimentConfig, devices: Sequence[Any]) -> Mesh:
    """The mesh of a configuration over `devices`: slice by slice, row-major on the coordinates of the chips.

    Devices without coordinates (CPU, GPU) are taken in their order.  Raises ValueError where there are too few.
    """
    sizes = axis_sizes(config)
    needed = prod(sizes.values())
    if len(devices) < needed:
        raise ValueError(f"The mesh {config.mesh.text()} needs {needed} devices, and there are {len(devices)}.")
    ordered = sorted(devices, key=_place) if hasattr(devices[0], "core_on_chip") else list(devices)
    return Mesh(np.array(ordered[:needed], dtype=object).reshape(tuple(sizes.values())), tuple(sizes))


def _place(device: Any) -> tuple[int, ...]:
    return (getattr(device, "slice_index", 0) or 0, *device.coords, device.core_on_chip)


@dataclass(frozen=True)
class Layout:
    """Axes of `mesh` by what they shard.  groups: keys as `sharded_arrays.GROUPS`; axes of size 1 shard nothing."""

    mesh: Mesh
    groups: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, config: ExperimentConfig, mesh: Mesh) -> Layout:
        groups = sharded_arrays.groups(config.mesh, config.training, sharded_arrays.far_names(config.mesh))
        return cls(mesh, {name: tuple(a for a in axes if mesh.shape[a] > 1) for name, axes in groups.items()})

    def size(self, group: str) -> int:
        return prod(self.mesh.shape[axis] for axis in self.groups[group])

    def spec(self, shape: Sequence[int], dims: sharded_arrays.Dims) -> PartitionSpec:
        """Axes that do not divide a dimension leave it whole, from the minor one on."""
        kept, _ = sharded_arrays.fit(Array("", "", tuple(shape), dims), self.groups, dict(self.mesh.shape))
        return PartitionSpec(*(axes or None for axes in kept))

    def sharding(self, shape: Sequence[int], *dims: Group | tuple[str, ...]) -> NamedSharding:
        """One group, several groups or None for each dimension."""
        named = tuple(() if d is None else (d,) if isinstance(d, str) else d for d in dims)
        return NamedSharding(self.mesh, self.spec(shape, named))

    def constrain(self, x: jax.Array, *dims: Group | tuple[str, ...]) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, self.sharding(x.shape, *dims))

    def gather(self, x: jax.Array, sharded: Sequence[Any], whole: Sequence[Any]) -> jax.Array:
        """All-gathers `x` from the dimensions as in `sharded` to those as in `whole`; its gradient is reduce-scattered.

        Left to itself, the gradient of a sharding constraint keeps the sharding of the gathered array: an all-reduce.
        """
        return _gather(x, self.sharding(x.shape, *sharded), self.sharding(x.shape, *whole))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gather(x: jax.Array, sharded: NamedSharding, whole: NamedSharding) -> jax.Array:
    x = jax.lax.with_sharding_constraint(x, sharded)
    return jax.lax.with_sharding_constraint(x, whole)


def _gather_forward(x: jax.Array, sharded: NamedSharding, whole: NamedSharding) -> tuple[jax.Array, None]:
    return _gather(x, sharded, whole), None


def _gather_backward(sharded: NamedSharding, whole: NamedSharding, _: None, g: jax.Array) -> tuple[jax.Array]:
    return (jax.lax.with_sharding_constraint(g, sharded),)


_gather.defvjp(_gather_forward, _gather_backward)
