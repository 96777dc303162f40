"""The candidates: every mesh of the chips with every further change, and what each one is made of.

A candidate is a mesh and a change of training keys.  All meshes with all changes are priced as one array; a few that a
user asks about are laid side by side the same way, so both get the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel import memory
from perfmodel.arrays import picked
from perfmodel.config import ExperimentConfig, Mesh, mesh_distance, missing_facts
from perfmodel.legality import MemoryPosterior
from perfmodel.space import SearchBounds, Space, build_space, space_workload
from perfmodel.workload import Workload, from_config, stack
from proposals.candidate import Candidate, candidate
from proposals.proposer.changes import Change, doublings_of

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Kinds of further changes, as columns of `Candidates.changed`.
CHANGE_KINDS = ("global_batch", "grad_accum", "micro_batch", "virtual_stages", "remat", "weight_sharding", "xla_flags")


@dataclass(frozen=True)
class Candidates:
    """Configurations side by side; candidate `baseline` is the current configuration.

    config: as the user gave it, gaps and all.  meshes: distinct meshes; sizes: (meshes, columns), columns: (`ici` or
    `dcn`, axis).  changes: distinct further changes.  mesh_of, change_of: per candidate, indices into these.
    work: all of them as arrays; shape: what its arrays broadcast to; at: per candidate, its place therein.  posterior:
    what is known of the memory of the run.
    """

    config: ExperimentConfig
    meshes: tuple[Mesh, ...] | Space
    columns: tuple[tuple[str, str], ...]
    sizes: Ints
    changes: tuple[Change, ...]
    mesh_of: Ints
    change_of: Ints
    baseline: int
    work: Workload
    shape: tuple[int, ...]
    at: Ints
    posterior: MemoryPosterior = field(default_factory=MemoryPosterior)

    def __len__(self) -> int:
        return len(self.at)

    def flat(self, values: npt.ArrayLike) -> Floats:
        """An array of the workload, per candidate."""
        whole = np.broadcast_to(np.asarray(values, dtype=np.float64), self.shape)
        return np.array(whole.reshape(-1)[self.at])

    def spread(self, per_mesh: Floats) -> Floats:
        """Values per mesh as an array that broadcasts against the workload's."""
        return per_mesh.reshape((-1,) + (1,) * (len(self.shape) - 1))

    def work_of(self, rows: Ints) -> Workload:
        """The candidates at these indices as a workload along one dimension."""
        places: Any = np.unravel_index(self.at[rows], self.shape)
        work: Workload = picked(self.work, places, self.shape)
        return work

    def take(self, keep: npt.NDArray[Any]) -> Candidates:
        """The candidates at these indices, which must hold the baseline."""
        baseline = int(np.flatnonzero(keep == self.baseline)[0])
        return replace(
            self, mesh_of=self.mesh_of[keep], change_of=self.change_of[keep], at=self.at[keep], baseline=baseline
        )

    def mesh(self, index: int) -> Mesh:
        """In the user's own axes: those the search added are left out where they are 1."""
        return self.mesh_at(int(self.mesh_of[index]))

    def mesh_at(self, row: int) -> Mesh:
        full = self.meshes.mesh(row) if isinstance(self.meshes, Space) else self.meshes[row]
        inside = {axis for axis, _ in self.config.mesh.ici}
        across = {axis for axis, _ in self.config.mesh.dcn}
        return replace(
            full,
            ici=tuple((a, n) for a, n in full.ici if n > 1 or a in inside),
            dcn=tuple((a, n) for a, n in full.dcn if n > 1 or a in across),
        )

    def change(self, index: int) -> Change:
        return self.changes[int(self.change_of[index])]

    def configured(self, index: int) -> ExperimentConfig:
        """The configuration that a candidate would run."""
        return candidate(self.config, Candidate(self.mesh(index).to_json(), self.change(index)))

    @property
    def home(self) -> int:
        """Row of the mesh that ran."""
        return int(self.mesh_of[self.baseline])

    def role(self, *roles: str) -> Ints:
        """Product of sizes over ICI and DCN of all axes with these canonical roles, per candidate."""
        mesh = self.config.mesh
        members = [i for i, (_, axis) in enumerate(self.columns) if mesh.role(axis) in roles]
        return np.asarray(np.prod(self.sizes[:, members], axis=1, dtype=np.int64)[self.mesh_of])

    @cached_property
    def mesh_doublings(self) -> Floats:
        """Distance of each mesh from the current configuration (`config.mesh_distance`)."""
        if isinstance(self.meshes, Space):
            return self.meshes.distances(self.config.mesh)
        return np.array([mesh_distance(self.config.mesh, mesh) for mesh in self.meshes])

    def doublings(self) -> Floats:
        return np.asarray(self.mesh_doublings[self.mesh_of])

    @cached_property
    def changed(self) -> Floats:
        """(candidates, CHANGE_KINDS): how far each training key moves, in doublings or steps of its policy."""
        rows = [doublings_of(self.config.training, change) for change in self.changes]
        table = np.array([[row.get(kind, 0.0) for kind in CHANGE_KINDS] for row in rows])
        return np.asarray(table[self.change_of])

    def changes_kind(self, kind: str) -> Bools:
        return np.asarray(self.changed[:, CHANGE_KINDS.index(kind)] != 0)

    @cached_property
    def tokens_ratio(self) -> Floats:
        """Tokens of a candidate's step over those of the current configuration."""
        tokens = self.flat(self.work.training.global_batch * self.work.training.seq_len)
        return np.asarray(tokens / tokens[self.baseline])

    @cached_property
    def used(self) -> memory.MemoryUse:
        """Memory per chip as the evidence corrects it, per candidate; of the assumed shape where the model is not
        known."""
        of_meshes = self.posterior.corrected(memory.per_chip(self.work))
        return memory.MemoryUse(**{part.name: self.flat(getattr(of_meshes, part.name)) for part in fields(of_meshes)})

    @cached_property
    def probability_fits(self) -> Floats:
        """Probability that each candidate fits; 1 where neither the model nor a peak says anything."""
        if missing_facts(self.config) and not self.posterior.has_peak:
            return np.ones(len(self))
        return self.posterior.probability_fits(self.used)


def enumerate_meshes(config: ExperimentConfig, filled: ExperimentConfig) -> Space:
    """All factorisations over the configuration's axes; over the usual ones too where the model is known.

    filled: the configuration with its gaps filled by the calibration, for pricing.  The axes of a run whose model is
    unknown are those its program has: others it may not support.
    """
    known = config.model is not None
    axes = tuple(axis for axis, _ in config.mesh.ici)
    across = [axis for axis, _ in config.mesh.dcn]
    if known and config.hardware.slices > 1 and not any(config.mesh.role(axis) == "fsdp" for axis in across):
        across.append("fsdp")
    return build_space(filled, SearchBounds(axes=None if known else axes, dcn_axes=tuple(across) or None))


def all_with(
    space: Space, config: ExperimentConfig, changes: Sequence[Change], known: MemoryPosterior | None = None
) -> Candidates:
    """Every mesh of a space with every change, mesh by mesh.  The mesh that ran is in it; the first change is empty.

    known: of the memory of the run.
    """
    space = replace(space, changes=tuple(changes))
    meshes, ways = space.shape
    home = space.row_of(config.mesh)
    assert home is not None
    columns = (*(("ici", axis) for axis in space.axes), *(("dcn", axis) for axis in space.dcn_axes))
    return Candidates(
        config=config,
        meshes=space,
        columns=columns,
        sizes=np.concatenate([space.sizes, space.dcn_sizes], axis=1),
        changes=tuple(changes),
        mesh_of=np.repeat(np.arange(meshes), ways),
        change_of=np.tile(np.arange(ways), meshes),
        baseline=home * ways,
        work=space_workload(space, slice(0, meshes)),
        shape=space.shape,
        at=np.arange(meshes * ways),
        posterior=known or MemoryPosterior(),
    )


def side_by_side(
    config: ExperimentConfig,
    filled: ExperimentConfig,
    listed: Sequence[tuple[Mesh, Change]],
    known: MemoryPosterior | None = None,
) -> Candidates:
    """The current configuration, and these.  Their meshes must name the chips of the configuration; legal or not.

    known: of the memory of the run.
    """
    pairs = [(config.mesh, Change()), *listed]
    meshes = tuple(mesh for mesh, _ in pairs)
    columns = tuple(
        dict.fromkeys((place, axis) for mesh in meshes for place in ("ici", "dcn") for axis, _ in getattr(mesh, place))
    )
    sizes = [[dict(getattr(mesh, place)).get(axis, 1) for place, axis in columns] for mesh in meshes]
    count = len(pairs)
    return Candidates(
        config=config,
        meshes=meshes,
        columns=columns,
        sizes=np.array(sizes, dtype=np.int64),
        changes=tuple(change for _, change in pairs),
        mesh_of=np.array([meshes.index(mesh) for mesh in meshes]),  # the mesh that ran is at home wherever it stands
        change_of=np.arange(count),
        baseline=0,
        work=stack([from_config(candidate(filled, Candidate(mesh.to_json(), change))) for mesh, change in pairs]),
        shape=(count,),
        at=np.arange(count),
        posterior=known or MemoryPosterior(),
    )
