"""The candidates of a search: every factorisation of the chips over the mesh axes, with batch, remat and sharding.

Meshes run along the first dimension of the arrays, changes of the training along the second, so what depends on the
mesh alone is computed once per mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from math import comb, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from formatting import large
from perfmodel.accounting import model_numbers
from perfmodel.arrays import Floats, mapped
from perfmodel.config import (
    CANONICAL_ROLES,
    REMAT_OPEN,
    ConfigError,
    ExperimentConfig,
    Hardware,
    Mesh,
    framework_of,
    merged_role,
    mesh_distance,
    placement,
    wide_sizes,
)
from perfmodel.execution import ExecutionProfile, profile_named
from perfmodel.topology import Ints
from perfmodel.workload import Workload, assemble_mesh, chip_numbers, chip_of, mesh_links, training_numbers

#: Training keys with new values.
Change = Mapping[str, Any]

#: Candidates a search may have: a few seconds of work, a few hundred megabytes of arrays.
MOST_CANDIDATES = 5_000_000


@dataclass(frozen=True)
class SearchBounds:
    """What the search may vary.  None: as the configuration has it.

    axes: ICI axis names, major to minor (default: the configuration's, and `data`, `seq`, `model`, `expert` for a
    mixture, `pipeline` on GPUs, where it lacks them).  dcn_axes: axes across slices to vary too, None to keep the
    configuration's sizes there.  changes: of training keys, to try on every mesh.
    """

    axes: tuple[str, ...] | None = None
    dcn_axes: tuple[str, ...] | None = None
    changes: tuple[Change, ...] = ({},)


@dataclass(frozen=True)
class Space:
    """The candidates: every mesh with every change of the training.

    axes: major to minor; one that is listed twice, for meshes in two orders, has its size in one of the two.  sizes:
    (meshes, axes) of the ICI axes; dcn_sizes: (meshes, dcn_axes), the same across slices.  changes: training keys with
    other values than the configuration's.
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
        every = [(axis, int(n)) for axis, n in zip(self.axes, self.sizes[index], strict=True)]
        wide = {axis for axis, n in every if n > 1}
        sizes = tuple(
            (axis, n)
            for at, (axis, n) in enumerate(every)
            if n > 1 or (axis not in wide and axis not in self.axes[:at])
        )
        across = tuple((axis, int(n)) for axis, n in zip(self.dcn_axes, self.dcn_sizes[index], strict=True))
        return Mesh(sizes, across, self.config.mesh.axis_roles)

    def distances(self, home: Mesh) -> Floats:
        """Return how far each mesh is from another one (`config.mesh_distance`)."""
        one = placement(home)
        moved = np.zeros(len(self.sizes))
        for place, axes, sizes in ((0, self.axes, self.sizes), (1, self.dcn_axes, self.dcn_sizes)):
            roles = [merged_role(self.config.mesh.role(axis), place == 0) for axis in axes]
            at_home = dict.fromkeys(roles, 1)
            for role, size in one[place]:
                at_home[role] = at_home.get(role, 1) * size
            for role, size in at_home.items():
                own = np.prod(sizes[:, [i for i, each in enumerate(roles) if each == role]], axis=1, dtype=np.float64)
                moved += np.abs(np.log2(own / size))
        # Meshes of the same sizes differ where their axes come in another order.
        alike = np.flatnonzero(moved < 1e-9)
        distance = moved / 2.0
        distance[alike] = [mesh_distance(home, self.mesh(int(row))) for row in alike]
        return np.asarray(distance)

    def row_of(self, mesh: Mesh) -> int | None:
        """Return the row with the placement of a mesh, written as it is where it can be; None where the space has
        none."""
        rows = np.flatnonzero(self.distances(mesh) == 0.0)
        as_written = (row for row in rows if wide_sizes(self.mesh(int(row))) == wide_sizes(mesh))
        return int(next(as_written, rows[0])) if len(rows) else None

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


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    return tuple(sorted(factorisations(number, 2)[:, 0].tolist()))


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


def program_of(config: ExperimentConfig) -> ExecutionProfile:
    """Return what the program of a configuration has, in its release where that is known."""
    return profile_named(framework_of(config), chip_of(config.hardware).kind, config.extra.get("software_year"))


def default_axes(config: ExperimentConfig) -> tuple[str, ...]:
    """Return the configuration's ICI axes, and the usual ones that it lacks and its program has, major to minor.

    Replicas are usual where there is more than one NVLink domain: weights sharded inside a domain, replicas across.
    """
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
        if domains(config.hardware) > 1:
            wanted.insert(1, "replica")
    has = program_of(config).axes
    for role in wanted:
        if role not in roles and (role in has or role == "data"):
            insert_axis(names, role, mesh)
    return tuple(names)


#: Roles from major to minor where nobody chose an order: what communicates most lies on the nearest links.
CANONICAL_ORDER = ("pipeline", "replica", "data", "fsdp", "seq", "expert", "model")


def domains(hardware: Hardware) -> int:
    """Return the number of NVLink domains of a GPU cluster's slice; 1 for TPUs."""
    is_gpu = chip_of(hardware).kind == "gpu"
    return prod(hardware.topology[1:]) if is_gpu else 1


def both_orders(axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """Return the axes so that meshes in their own and in the canonical order fit: the shortest sequence that holds
    both.  The same axes where the two orders are one."""
    canonical = tuple(sorted(axes, key=lambda axis: CANONICAL_ORDER.index(mesh.role(axis))))
    slots: list[str] = []
    own, usual = list(axes), list(canonical)
    while own and usual:
        in_later = [sum(axis in after for axis in before) for before, after in ((own[1:], usual), (own, usual[1:]))]
        if own[0] == usual[0]:
            slots.append(own.pop(0))
            usual.pop(0)
        elif usual[0] in own[1:] and in_later[0] >= in_later[1]:
            slots.append(own.pop(0))
        else:
            slots.append(usual.pop(0))
    return (*slots, *own, *usual)


def insert_axis(names: list[str], axis: str, mesh: Mesh) -> None:
    """Insert an axis that a mesh lacks behind those that CANONICAL_ORDER puts before it, in place."""
    rank = CANONICAL_ORDER.index(mesh.role(axis))
    before = [i for i, name in enumerate(names) if CANONICAL_ORDER.index(mesh.role(name)) <= rank]
    names.insert(max(before) + 1 if before else 0, axis)


def build_space(config: ExperimentConfig, constraints: SearchBounds | None = None) -> Space:
    """All candidates of a search.  Raises ConfigError for an axis without a role or too many candidates."""
    rules = constraints or SearchBounds()
    axes = rules.axes or both_orders(default_axes(config), config.mesh)
    for axis in (*axes, *(rules.dcn_axes or ())):
        if config.mesh.role(axis) not in CANONICAL_ROLES:
            raise ConfigError(f"axes.{axis}", "has no known role; name it in mesh.axis_roles")
    count = count_factorisations(config.hardware.chips_per_slice, len(axes)) * len(rules.changes)
    if rules.dcn_axes:
        count *= count_factorisations(config.hardware.slices, len(rules.dcn_axes))
    if count > MOST_CANDIDATES:
        raise ConfigError(
            "mesh.ici", f"{len(axes)} axes over these chips make {large(count)} candidates; name fewer axes with --axes"
        )
    sizes = factorisations(config.hardware.chips_per_slice, len(axes))
    keep = _in_one_order(config, axes, sizes)
    if rules.axes is None or "replica" not in rules.axes:
        keep &= _replicas_of_domains(config, axes, sizes)
    if rules.axes is None:  # axes that the user named are what the program has
        keep &= _no_wider_than_the_program(config, axes, sizes)
    sizes = sizes[keep]
    if rules.dcn_axes:
        dcn_axes, across = rules.dcn_axes, factorisations(config.hardware.slices, len(rules.dcn_axes))
    else:
        dcn_axes = tuple(axis for axis, _ in config.mesh.dcn)
        across = np.array([[size for _, size in config.mesh.dcn]], dtype=np.int64)
    ways = len(across)
    across = np.tile(across, (len(sizes), 1))
    return Space(config, axes, np.repeat(sizes, ways, axis=0), dcn_axes, across, rules.changes)


def _in_one_order(config: ExperimentConfig, axes: Sequence[str], sizes: Ints) -> npt.NDArray[np.bool_]:
    """Return True for meshes whose axes are in the configuration's order or in the canonical one, each in the first
    place that it may have."""
    keep = np.ones(len(sizes), dtype=bool)
    if len(set(axes)) == len(axes):
        return keep
    ran = [axis for axis, _ in config.mesh.ici]
    usual = default_axes(config)
    own = [axis for axis in usual if axis in ran] + [axis for axis in usual if axis not in ran]
    canonical = sorted(usual, key=lambda axis: CANONICAL_ORDER.index(config.mesh.role(axis)))
    seen: set[tuple[tuple[str, int], ...]] = set()
    ranks = [{axis: at for at, axis in enumerate(order)} for order in (usual, own, canonical)]
    for row, each in enumerate(sizes):
        wide = [(axis, int(n)) for axis, n in zip(axes, each, strict=True) if n > 1]
        names = [axis for axis, _ in wide]
        ordered = any(all(rank[a] < rank[b] for a, b in pairwise(names)) for rank in ranks)
        keep[row] = ordered and len(set(names)) == len(names) and tuple(wide) not in seen
        seen.add(tuple(wide))
    return keep


def _no_wider_than_the_program(config: ExperimentConfig, axes: Sequence[str], sizes: Ints) -> npt.NDArray[np.bool_]:
    """Return True for meshes with no wider axis of a role that the program lacks than the configuration has."""
    keep = np.ones(len(sizes), dtype=bool)
    for role in {config.mesh.role(axis) for axis in axes} - {"data", *program_of(config).axes}:
        columns = [number for number, axis in enumerate(axes) if config.mesh.role(axis) == role]
        keep &= sizes[:, columns].prod(axis=1) <= config.mesh.ici_size(role)
    return keep


def _replicas_of_domains(config: ExperimentConfig, axes: Sequence[str], sizes: Ints) -> npt.NDArray[np.bool_]:
    """Return True for meshes whose replicas consist of whole NVLink domains, or that have as many as the
    configuration."""
    columns = [number for number, axis in enumerate(axes) if config.mesh.role(axis) == "replica"]
    replicas = sizes[:, columns].prod(axis=1)
    whole = np.mod(domains(config.hardware), replicas) == 0
    return np.asarray(whole | (replicas == config.mesh.ici_size("replica")))


def space_workload(space: Space, rows: slice) -> Workload:
    """The meshes `rows` of the space with every change, as a workload of shape (meshes, changes)."""
    config = space.config
    training, hardware, mesh = config.training, config.hardware, config.mesh
    assert config.model is not None
    assert training.seq_len is not None
    roles = [mesh.role(axis) for axis in space.axes]
    sizes = space.sizes[rows]
    layout, links = mesh_links(hardware, roles, sizes)
    # Meshes along the first dimension, changes along the second.
    spread = mapped(lambda array: array[:, None], links)
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
