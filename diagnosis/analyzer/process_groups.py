"""Mesh axes of a process group: by its ranks, and where they leave it open by what the program calls it.

Ranks are laid on the mesh as device ids are (row-major, major axis first), which is Megatron's order of ranks when the
configuration lists tensor parallelism last.  Names: Megatron-Core's parallel_state (`TENSOR_MODEL_PARALLEL_GROUP`,
`DATA_PARALLEL_GROUP_WITH_CP`, …) and PyTorch's DeviceMesh (`mesh_tp`, `mesh_dp_shard`, `mesh_fsdp`, …).
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np

from diagnosis.analyzer.axes import AxisMatch, MeshAxes
from experiments.hlo.groups import Groups
from experiments.step_profile import Op

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


def match(op: Op, mesh: MeshAxes | None) -> tuple[AxisMatch | None, int | None]:
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
