"""The same run on fewer chips: the largest smaller slice, its meshes, and what of them is legal.

A step takes longer on fewer chips; these candidates are compared by time per token and chip.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh
from perfmodel.legality import MemoryPosterior
from proposals.constraints import Constraints
from proposals.plan import Rejected
from proposals.proposer.changes import Change
from proposals.proposer.limits import legal, rules_of
from proposals.proposer.space import Candidates, enumerate_meshes, side_by_side

#: Axes that shrink first when chips go, by role: what shards the batch needs no other program.
SHRINK = ("replica", "data", "fsdp", "seq", "expert", "pipeline", "model")
#: Configurations looked at; each is laid out by itself, since its chips are not those that ran.
MOST = 600


def smaller(hardware: Hardware, chips: int) -> Hardware | None:
    """The largest part of a cluster with at most a given number of chips: fewer slices, then dimensions halved, major
    ones first.

    None where not even one chip is left.
    """
    slices = max((n for n in range(1, hardware.slices + 1) if n * hardware.chips_per_slice <= chips), default=1)
    while hardware.slices % slices:
        slices -= 1
    topology = list(hardware.topology)
    while slices * prod(topology) > chips:
        even = [i for i, size in enumerate(topology) if size % 2 == 0]
        if not even:
            return None
        largest = max(even, key=lambda i: topology[i])
        topology[largest] //= 2
    return replace(hardware, topology=tuple(topology), slices=slices)


def fewer_chips(
    config: ExperimentConfig,
    filled: ExperimentConfig,
    changes: tuple[Change, ...],
    asked: Constraints,
    known: MemoryPosterior,
) -> tuple[Candidates, list[Rejected], int]:
    """The current configuration, every legal configuration on the smaller hardware, the nearest of the rejected meshes,
    and how many meshes were considered.  Raises ConfigError where the chips do not divide so far."""
    hardware = smaller(config.hardware, asked.at_most_chips or 1)
    mesh = _shrunk(config.mesh, config.hardware, hardware) if hardware is not None else None
    if hardware is None or mesh is None:
        raise ConfigError(
            "constraints.at_most_chips",
            f"is {asked.at_most_chips}, which cannot be reached by halving the topology and the mesh; allow more chips",
        )
    less = replace(config, hardware=hardware, mesh=mesh)
    space = enumerate_meshes(less, replace(filled, hardware=hardware, mesh=mesh))
    few = tuple(change for change in changes if len(change) <= 1)
    fitting, rejected = legal(space, less, few, replace(asked, at_most_chips=None, keep_axes=()), known=known)
    nearest = np.argsort(fitting.doublings(), kind="stable")[:MOST]
    own: Change = {"topology": list(hardware.topology), "slices": hardware.slices}
    listed = [(fitting.mesh(int(i)), {**own, **fitting.change(int(i))}) for i in nearest]
    candidates = side_by_side(config, filled, listed, known)
    out = np.zeros(len(candidates), dtype=bool)
    for rule in rules_of(candidates, asked):
        out |= rule.broken
    out[candidates.baseline] = False
    return candidates.take(np.flatnonzero(~out)), rejected, len(space.sizes)


def _shrunk(mesh: Mesh, old: Hardware, new: Hardware) -> Mesh | None:
    """The mesh with its batch axes halved until it names the chips that are left; None where that does not come out."""
    ici, dcn = dict(mesh.ici), dict(mesh.dcn)
    for sizes, goal in ((ici, new.chips_per_slice), (dcn, new.slices)):
        for role in SHRINK:
            for axis in sizes:
                while mesh.role(axis) == role and prod(sizes.values()) > goal and sizes[axis] % 2 == 0:
                    sizes[axis] //= 2
        if prod(sizes.values()) != goal:
            return None
    return replace(mesh, ici=tuple(ici.items()), dcn=tuple(dcn.items()))
