"""HLO text of the reconstructed ops, with the replica groups that a mesh gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

Mesh = Sequence[tuple[str, int]]

#: Up to this many devices XLA's explicit list of groups stays readable; above it, its iota form is written.
_EXPLICIT_UP_TO = 16


def device_groups(mesh: Mesh, axes: Sequence[str]) -> list[list[int]]:
    """Device numbers that communicate when an op runs over `axes`; devices are numbered row-major over the mesh."""
    strides = {name: prod(size for _, size in mesh[i + 1 :]) for i, (name, _) in enumerate(mesh)}
    fixed = [(name, size) for name, size in mesh if name not in axes]
    moving = [(name, size) for name, size in mesh if name in axes]

    def offsets(dims: Mesh) -> list[int]:
        return [
            sum(i * strides[name] for i, (name, _) in zip(index, dims, strict=True))
            for index in product(*(range(size) for _, size in dims))
        ]

    return [[base + step for step in offsets(moving)] for base in offsets(fixed)]


def replica_groups(mesh: Mesh, axes: Sequence[str]) -> str:
    """`replica_groups=…` as XLA prints it: explicit, or `[groups,size]<=[dims]T(permutation)` for many devices."""
    groups = device_groups(mesh, axes)
    if len(groups) * len(groups[0]) <= _EXPLICIT_UP_TO:
        return "replica_groups={" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
    dims: list[list[int | bool]] = []  # neighbours that move together are one dimension
    for name, size in mesh:
        if size == 1:
            continue
        moves = name in axes
        if dims and dims[-1][1] == moves:
            dims[-1][0] *= size
        else:
            dims.append([size, moves])
    order = [i for i, dim in enumerate(dims) if not dim[1]] + [i for i, dim in enumerate(dims) if dim[1]]
    head = f"replica_groups=[{len(groups)},{len(groups[0])}]<="
    if order == sorted(order):
        return f"{head}[{len(groups) * len(groups[0])}]"
    return f"{head}[{','.join(str(dim[0]) for dim in dims)}]T({','.join(map(str, order))})"


def ring_pairs(mesh: Mesh, axis: str) -> str:
    """`source_target_pairs=…`: every device sends to the next one on the ring of `axis`."""
    pairs = [
        (group[i], group[(i + 1) % len(group)]) for group in device_groups(mesh, [axis]) for i in range(len(group))
    ]
    return "source_target_pairs={" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}"


def shape(dtype: str, *dims: int) -> str:
    """`bf16[2,4096]{1,0}`: type, sizes and row-major layout."""
    layout = ",".join(str(i) for i in reversed(range(len(dims))))
    return f"{dtype}[{','.join(map(str, dims))}]{{{layout}}}"


def instruction(name: str, result: str, opcode: str, operands: Sequence[str], *attributes: str) -> str:
    """One HLO instruction as the profiler records it."""
    return ", ".join([f"%{name} = {result} {opcode}({', '.join(operands)})", *attributes])
