"""The meshes that may be proposed: every factorisation of the chips over the axes, and why the others may not.

Where the batch, the sequence length or the model are not known, a mesh is only known to be legal if its axis divides
what already ran: that is the ground the profile stands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfmodel import legality, memory
from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.search import Constraints, Space, build_space, default_axes, space_workload
from perfmodel.workload import Workload
from proposals.plan import Rejected

#: Tensor parallelism up to this size divides the heads of nearly every published model; used where heads are unknown.
HEADS_LIKELY = 8
#: Rejected meshes listed, nearest to what ran first.
LISTED = 200

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Meshes:
    """Candidate meshes of a search space; row `baseline` is what ran.  config: as the user gave it, gaps and all."""

    config: ExperimentConfig
    space: Space
    baseline: int

    def __len__(self) -> int:
        return len(self.space.sizes)

    def role(self, *roles: str) -> npt.NDArray[np.int64]:
        """Product of sizes over ICI and DCN of all axes with these canonical roles, per candidate."""
        mesh = self.config.mesh
        columns = [i for i, axis in enumerate(self.space.axes) if mesh.role(axis) in roles]
        inside = np.prod(self.space.sizes[:, columns], axis=1, dtype=np.int64)
        sizes: npt.NDArray[np.int64] = inside * mesh.dcn_size(*roles)
        return sizes

    def mesh(self, index: int) -> Mesh:
        """In the user's own axes: those the search added are left out where they are 1."""
        own = {axis for axis, _ in self.config.mesh.ici}
        full = self.space.mesh(index)
        return replace(full, ici=tuple((a, n) for a, n in full.ici if n > 1 or a in own))

    def doublings(self) -> npt.NDArray[np.float64]:
        """How far each candidate is from what ran: factors of two moved between axes."""
        ratio = self.space.sizes / self.space.sizes[self.baseline][None, :]
        return np.asarray(np.abs(np.log2(ratio)).sum(axis=1) / 2.0)

    def axes_moved(self) -> npt.NDArray[np.int64]:
        return np.asarray((self.space.sizes != self.space.sizes[self.baseline][None, :]).sum(axis=1))

    def take(self, keep: npt.NDArray[np.int64]) -> Meshes:
        """The rows `keep`, which must hold the baseline."""
        baseline = int(np.flatnonzero(keep == self.baseline)[0])
        return Meshes(self.config, replace(self.space, sizes=self.space.sizes[keep]), baseline)

    def workload(self) -> Workload:
        """All rows as arrays of shape (meshes, 1, 1, 1)."""
        return space_workload(self.space, slice(0, len(self)))


def enumerate_meshes(config: ExperimentConfig, filled: ExperimentConfig) -> Meshes:
    """All factorisations over the configuration's axes; over the usual ones too where the model is known.

    filled: the configuration with its gaps filled by the calibration, for pricing.  The axes of a run whose model is
    unknown are those its program has: others it may not support.
    """
    axes = default_axes(config) if config.model is not None else tuple(axis for axis, _ in config.mesh.ici)
    space = build_space(filled, Constraints(axes=axes))
    ran = np.array([dict(config.mesh.ici).get(axis, 1) for axis in axes])
    where = np.flatnonzero((space.sizes == ran).all(axis=1))
    return Meshes(config, space, int(where[0]))


def legal(meshes: Meshes) -> tuple[Meshes, list[Rejected]]:
    """Legal meshes, and the nearest of the others with the first rule each broke."""
    rules = [*_known_rules(meshes), *_unknown_rules(meshes)]
    first = np.full(len(meshes), -1)
    for number in reversed(range(len(rules))):
        first = np.where(rules[number][1], number, first)
    first[meshes.baseline] = -1
    nearest = [int(i) for i in np.argsort(meshes.doublings(), kind="stable") if first[i] >= 0]
    rejected = [
        Rejected(meshes.mesh(i).to_json(), rules[first[i]][0], _reason(meshes, i, *rules[first[i]]))
        for i in nearest[:LISTED]
    ]
    return meshes.take(np.flatnonzero(first < 0)), rejected


def _known_rules(meshes: Meshes) -> list[tuple[str, Bools, str]]:
    config, workload = meshes.config, meshes.workload()
    mesh, training = workload.mesh, config.training
    sizes = legality.Sizes(
        **{role: getattr(mesh, role) for role in ("replica", "data", "fsdp", "seq", "model", "expert", "pipeline")},
        micro_batches=workload.training.micro_batches,
        virtual_stages=workload.training.virtual_stages,
    )
    flags = dict(legality.broken_rules(sizes, config.model, training.global_batch, training.seq_len))
    flags["topology"] = mesh.regular == 0
    if config.model is not None and training.global_batch and training.seq_len:
        flags["memory"] = ~memory.per_chip(workload).fits
    count = len(meshes)
    flat = {rule: np.broadcast_to(flag, (count, 1, 1, 1)).reshape(count) for rule, flag in flags.items()}
    return [(rule, flat[rule], "") for rule in legality.RULES if rule in flat]


def _unknown_rules(meshes: Meshes) -> list[tuple[str, Bools, str]]:
    """Rules that cannot be checked because a fact is missing."""
    config = meshes.config
    found: list[tuple[str, Bools, str]] = []

    def off_ground(*roles: str) -> Bools:
        """Whether the size does not divide the size that ran, which is all that is known to be legal."""
        size = meshes.role(*roles)
        return np.asarray(np.mod(size[meshes.baseline], size) != 0)

    if config.training.global_batch is None:
        text = "The global batch is not known, only that it divides by the batch shards that ran."
        found.append(("batch_unknown", off_ground("replica", "data", "fsdp", "expert"), text))
    if config.training.seq_len is None:
        text = "The sequence length is not known, only that it divides by the sequence shards that ran."
        found.append(("sequence_unknown", off_ground("seq"), text))
    if config.model is None:
        size = meshes.role("model")
        unlikely = (size > max(HEADS_LIKELY, int(size[meshes.baseline]))) | ((size & (size - 1)) != 0)
        text = f"The model is not known; its heads may not divide by more than {HEADS_LIKELY} tensor shards."
        found.append(("heads_unknown", unlikely & off_ground("model"), text))
        for role in ("expert", "pipeline"):
            text = f"The model is not known, so the {role} axis stays within what ran."
            found.append((f"{role}_unknown", off_ground(role), text))
    return found


def _reason(meshes: Meshes, index: int, rule: str, _: Bools, text: str) -> str:
    if text:
        return text
    config = replace(meshes.config, mesh=meshes.mesh(index))
    broken = {violation.rule: violation.message for violation in legality.check(config)}
    return broken.get(rule, f"It breaks the rule {rule}.")


def split_dimensions(meshes: Meshes) -> npt.NDArray[np.bool_]:
    """Whether an axis takes a part of a torus dimension, so that the mesh cannot be had without splitting it."""
    dims = meshes.config.hardware.topology
    found = np.zeros(len(meshes), dtype=bool)
    for row, sizes in enumerate(meshes.space.sizes):
        found[row] = not _fills_whole_dimensions([int(n) for n in sizes if n > 1], [n for n in dims if n > 1])
    return found


def _fills_whole_dimensions(sizes: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether the axes, in order, are products of whole neighbouring dimensions."""
    left = list(dims)
    for size in sizes:
        product = 1
        while product < size and left:
            product *= left.pop(0)
        if product != size:
            return False
    return True
