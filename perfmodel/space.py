"""The candidates of a search: every factorisation of the chips over the mesh axes, with batch, remat and sharding.

Meshes run along the first dimension of the arrays, changes of the training along the second, so what depends on the
mesh alone is computed once per mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import combinations, product
from math import comb, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from formatting import large
from perfmodel.config import CANONICAL_ROLES, ConfigError, ExperimentConfig, Mesh
from perfmodel.model_numbers import model_numbers
from perfmodel.topology import Floats, Ints, Links
from perfmodel.workload import (
    REMAT_OPEN,
    Workload,
    assemble_mesh,
    chip_numbers,
    chip_of,
    mesh_links,
    training_numbers,
)

#: Training keys with new values.
Change = Mapping[str, Any]

#: Candidates a search may have: a few seconds of work, a few hundred megabytes of arrays.
MOST_CANDIDATES = 5_000_000


@dataclass(frozen=True)
class SearchBounds:
    """What the search may vary.  None: as the configuration has it.

    axes: ICI axis names, major to minor (default: the configuration's, and `data`, `seq`, `model`, `expert` for a
    mixture, `pipeline` on GPUs, where it lacks them).  dcn_axes: axes across slices to vary too, None to keep the
    configuration's sizes there.  fixed, at_most: sizes by ICI axis.  global_batches, remats, weight_shardings: values
    to try beside each other.
    """

    axes: tuple[str, ...] | None = None
    dcn_axes: tuple[str, ...] | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    global_batches: tuple[int, ...] | None = None
    remats: tuple[str, ...] | None = None
    weight_shardings: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Space:
    """The candidates: every mesh with every change of the training.

    sizes: (meshes, axes) of the ICI axes; dcn_sizes: (meshes, dcn_axes), the same across slices.  changes: training
    keys with other values than the configuration's.
    """

    config: ExperimentConfig
    axes: tuple[str, ...]
    sizes: Ints
    dcn_axes: tuple[str, ...]
    dcn_sizes: Ints
    changes: tuple[Change, ...] = ({},)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.sizes), len(self.changes)

    @property
    def count(self) -> int:
        return len(self.sizes) * len(self.changes)

    @property
    def global_batches(self) -> Floats:
        """Sequences per step of each change, of shape (1, changes)."""
        own = self.config.training.global_batch
        return np.array([[change.get("global_batch", own) for change in self.changes]], dtype=np.float64)

    def mesh(self, index: int) -> Mesh:
        sizes = tuple((axis, int(n)) for axis, n in zip(self.axes, self.sizes[index], strict=True))
        across = tuple((axis, int(n)) for axis, n in zip(self.dcn_axes, self.dcn_sizes[index], strict=True))
        return Mesh(sizes, across, self.config.mesh.axis_roles)

    def take(self, rows: npt.NDArray[Any]) -> Space:
        """Only these meshes."""
        return replace(self, sizes=self.sizes[rows], dcn_sizes=self.dcn_sizes[rows])

    def config_at(self, mesh: int, change: int) -> ExperimentConfig:
        return replace(changed(self.config, self.changes[change]), mesh=self.mesh(mesh), measured=None)


def changed(config: ExperimentConfig, change: Change) -> ExperimentConfig:
    """The configuration with other values of training keys; a policy that is named is no longer a default that nobody
    asked for."""
    extra = config.extra
    if "remat" in change:
        extra = {key: value for key, value in extra.items() if key != REMAT_OPEN}
    return replace(config, training=replace(config.training, **change), extra=extra)


@cache
def factorisations(number: int, axes: int) -> Ints:
    """All ordered ways to write `number` as a product of `axes` sizes: (ways, axes)."""
    columns = np.ones((1, axes), dtype=np.int64)
    for prime, power in prime_powers(number):
        # Distribute the prime's copies: bars between stars.
        exponents = np.array(
            [np.diff((-1, *bars, power + axes - 1)) - 1 for bars in combinations(range(power + axes - 1), axes - 1)],
            dtype=np.int64,
        )
        columns = (columns[:, None, :] * (prime**exponents)[None, :, :]).reshape(-1, axes)
    return columns


def count_factorisations(number: int, axes: int) -> int:
    """How many `factorisations` there are, without building them."""
    return prod(comb(power + axes - 1, axes - 1) for _, power in prime_powers(number))


def prime_powers(number: int) -> Iterator[tuple[int, int]]:
    """Its prime factors, smallest first, each with its power."""
    prime = 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number //= prime
            power += 1
        if power:
            yield prime, power
        prime = prime + 1 if prime * prime <= number else max(number, prime + 1)


def default_axes(config: ExperimentConfig) -> tuple[str, ...]:
    """The configuration's ICI axes, and the usual ones it lacks, each at its place from major to minor."""
    mesh = config.mesh
    names = [axis for axis, _ in mesh.ici]
    roles = {mesh.role(axis) for axis in names}
    wanted = ["seq", "model"]
    if not roles & {"data", "fsdp"}:
        wanted.insert(0, "data")
    if config.model is not None and config.model.experts:
        wanted.insert(-1, "expert")
    if chip_of(config.hardware).kind == "gpu":
        wanted.insert(0, "pipeline")
    for role in wanted:
        if role not in roles:
            after = [i for i, axis in enumerate(names) if _ORDER.index(mesh.role(axis)) <= _ORDER.index(role)]
            names.insert(max(after) + 1 if after else 0, role)
    return tuple(names)


_ORDER = ("pipeline", "replica", "data", "fsdp", "seq", "expert", "model")


def build_space(config: ExperimentConfig, constraints: SearchBounds | None = None) -> Space:
    """All candidates of a search.  Raises ConfigError for an axis without a role or a size that cannot be had."""
    rules = constraints or SearchBounds()
    axes = rules.axes or default_axes(config)
    for axis in (*axes, *(rules.dcn_axes or ())):
        if config.mesh.role(axis) not in CANONICAL_ROLES:
            raise ConfigError(f"axes.{axis}", "has no known role; name it in mesh.axis_roles")
    asked = {"global_batch": rules.global_batches, "remat": rules.remats, "weight_sharding": rules.weight_shardings}
    tried = {key: values for key, values in asked.items() if values}
    changes = tuple(dict(zip(tried, values, strict=True)) for values in product(*tried.values()))
    count = count_factorisations(config.hardware.chips_per_slice, len(axes)) * len(changes)
    if rules.dcn_axes:
        count *= count_factorisations(config.hardware.slices, len(rules.dcn_axes))
    if count > MOST_CANDIDATES:
        raise ConfigError(
            "mesh.ici", f"{len(axes)} axes over these chips make {large(count)} candidates; name fewer axes with --axes"
        )
    sizes = factorisations(config.hardware.chips_per_slice, len(axes))
    keep = np.ones(len(sizes), dtype=bool)
    for axis, size in rules.fixed.items():
        keep &= sizes[:, _column(axes, axis)] == size
    for axis, size in rules.at_most.items():
        keep &= sizes[:, _column(axes, axis)] <= size
    sizes = sizes[keep]
    if rules.dcn_axes:
        dcn_axes, across = rules.dcn_axes, factorisations(config.hardware.slices, len(rules.dcn_axes))
    else:
        dcn_axes = tuple(axis for axis, _ in config.mesh.dcn)
        across = np.array([[size for _, size in config.mesh.dcn]], dtype=np.int64)
    ways = len(across)
    across = np.tile(across, (len(sizes), 1))
    return Space(config, axes, np.repeat(sizes, ways, axis=0), dcn_axes, across, changes)


def _column(axes: Sequence[str], axis: str) -> int:
    if axis not in axes:
        raise ConfigError(f"axes.{axis}", f"is not searched; the axes are {' '.join(axes)}")
    return list(axes).index(axis)


def space_workload(space: Space, rows: slice) -> Workload:
    """The meshes `rows` of the space with every change, as a workload of shape (meshes, changes)."""
    config = space.config
    training, hardware, mesh = config.training, config.hardware, config.mesh
    assert config.model is not None
    assert training.seq_len is not None
    roles = [mesh.role(axis) for axis in space.axes]
    sizes = space.sizes[rows]
    layout, links = mesh_links(hardware, roles, sizes)
    spread = {name: _spread(group) for name, group in links.items()}
    ici = _by_role(roles, sizes)
    # Where it is the same for all, one value will do for all.
    varies = bool((space.dcn_sizes != space.dcn_sizes[:1]).any())
    across = space.dcn_sizes[rows] if varies else space.dcn_sizes[:1]
    dcn = _by_role([mesh.role(axis) for axis in space.dcn_axes], across)
    numbers = assemble_mesh(hardware, ici, dcn, layout.regular.astype(np.float64)[:, None], spread)
    return Workload(
        chip=chip_numbers(hardware, training.precision),
        model=model_numbers(config.model, float(training.seq_len)),
        mesh=numbers,
        training=training_numbers(training, numbers.batch_shards, config.extra, chip_of(hardware).kind, space.changes),
    )


def _by_role(roles: Sequence[str], sizes: Ints) -> dict[str, Floats]:
    """Products of sizes over the axes of each role, of shape (meshes, 1)."""
    return {
        role: np.prod(sizes[:, [i for i, r in enumerate(roles) if r == role]], axis=1, dtype=np.float64, keepdims=True)
        for role in CANONICAL_ROLES
    }


def _spread(links: Links) -> Links:
    def shaped(value: Floats) -> Floats:
        return value[:, None]

    return Links(**{part.name: shaped(getattr(links, part.name)) for part in fields(Links)})
