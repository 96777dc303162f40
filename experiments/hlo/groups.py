"""Who talks to whom: `replica_groups` in XLA's three notations and `source_target_pairs`, as arrays of device ids.

Explicit ``{{0,1},{2,3}}``; iota ``[2,2]<=[4]`` or ``[2,2]<=[2,2]T(1,0)``; mesh ``mesh['x'=2,'y'=2] {'y'}`` with
optional sub-axes ``'x':(2)2``.  Source: xla/hlo/ir/replica_group.cc and collective_device_list.cc (OpenXLA).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

_BRACE = re.compile(r"[{}]")
_START = re.compile(r"(replica_groups|source_target_pairs)\s*=\s*")
_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[([\d,\s]+)\](?:\s*T\(([\d,\s]+)\))?")
_ORDER = re.compile(r"\(\[([\d,\s]+)\]\s*T\(([\d,\s]+)\)\)")
_MESH = re.compile(r"mesh\s*\[([^\]]*)\]([^{]*)\{([^}]*)\}")
_AXIS = re.compile(r"['\"]?([\w.\-/]+)['\"]?\s*=\s*(\d+)")
_AXIS_REF = re.compile(r"['\"]([\w.\-/]+)['\"](?:\s*:\s*\((\d+)\)(\d+))?")
#: More devices than any cluster has: a number above it is nonsense in the file, not a group.
_MOST_DEVICES = 2_000_000


@dataclass(frozen=True, eq=False)
class Groups:
    """Device ids that talk to each other.

    members: shape (groups, size) of device ids; ragged explicit groups are cut to the smallest.  pairs: True for
    source-target pairs (each row is one transfer).  devices: how many devices the notation states, None for explicit
    lists.  mesh_axes: (name, size) as a mesh notation states them, and the names it communicates over.
    everyone: ``{}``, all devices in one group.
    """

    members: IntArray
    pairs: bool = False
    devices: int | None = None
    mesh_axes: tuple[tuple[str, int], ...] = ()
    named: tuple[str, ...] = ()
    everyone: bool = False

    @property
    def size(self) -> int:
        """Participants per group (for pairs: of the whole permutation, see `permuted`)."""
        return int(self.members.shape[1])


def _integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _braces(text: str, start: int) -> str:
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start : match.end()]
    return text[start:]


def _explicit(text: str, pairs: bool) -> Groups | None:
    rows = [_integers(row) for row in re.findall(r"\{([\d,\s]*)\}", text)]
    rows = [row for row in rows if row]
    if not rows:
        return Groups(np.zeros((0, 0), dtype=np.int64), pairs=pairs, everyone=not pairs)
    size = min(len(row) for row in rows)
    if max(max(row) for row in rows) > _MOST_DEVICES:
        return None
    return Groups(np.array([row[:size] for row in rows], dtype=np.int64), pairs=pairs)


def _iota(dims: str, reshape: str, transpose: str | None) -> Groups | None:
    shape, source = _integers(dims), _integers(reshape)
    total = prod(source)
    if not shape or total == 0 or total > _MOST_DEVICES or prod(shape) != total:
        return None
    ids = np.arange(total, dtype=np.int64).reshape(source)
    if transpose is not None:
        order = _integers(transpose)
        if sorted(order) != list(range(len(source))):
            return None
        ids = ids.transpose(order)
    return Groups(ids.reshape(-1, shape[-1]), devices=total)


def _mesh(axes_text: str, between: str, refs_text: str) -> Groups | None:
    axes = tuple((name, int(size)) for name, size in _AXIS.findall(axes_text))
    total = prod(size for _, size in axes)
    if not axes or total == 0 or total > _MOST_DEVICES:
        return None
    ids = np.arange(total, dtype=np.int64)
    listed = _IOTA.search(between)
    if listed:  # device_ids=([4,2]<=[8]T(…)): the mesh's own order of devices
        inner = _iota(f"{total}", listed.group(2), listed.group(3))
        ids = ids if inner is None else inner.members.reshape(-1)
    elif order := _ORDER.search(between):  # device_ids=([4,4]T(1,0)): the same, the total left out
        inner = _iota(f"{total}", order.group(1), order.group(2))
        ids = ids if inner is None else inner.members.reshape(-1)
    elif "device_ids" in between:
        numbers = _integers(between)
        if sorted(numbers) == list(range(total)):
            ids = np.array(numbers, dtype=np.int64)
    # A sub-axis 'x':(a)b is the factor b of x that has a parts before it: split x into (a, b, rest).
    refs = [(name, int(pre or 1), int(size or 0)) for name, pre, size in _AXIS_REF.findall(refs_text)]
    if not refs and refs_text.strip():
        refs = [(name.strip(), 1, 0) for name in refs_text.split(",")]
    shape: list[int] = []
    chosen: list[int] = []
    for name, size in axes:
        parts = {(pre, part or size) for ref, pre, part in refs if ref == name}
        cuts = sorted({1, size} | {pre for pre, _ in parts} | {pre * part for pre, part in parts})
        for low, high in pairwise(cuts):
            if high % low:
                return None
            if any(pre <= low and high <= pre * part for pre, part in parts):
                chosen.append(len(shape))
            shape.append(high // low)
        if size == 1:
            shape.append(1)
    if any(ref not in dict(axes) for ref, _, _ in refs):
        return None
    grid = ids.reshape(shape)
    rest = [dim for dim in range(len(shape)) if dim not in chosen]
    size = prod(shape[dim] for dim in chosen)
    members = grid.transpose(rest + chosen).reshape(-1, size)
    whole = tuple(ref for ref, _, part in refs if part == 0)
    return Groups(members, devices=total, mesh_axes=axes, named=whole if len(whole) == len(refs) else ())


@lru_cache(maxsize=4096)
def parse_notation(kind: str, text: str) -> Groups | None:
    if kind == "source_target_pairs":
        groups = _explicit(text, pairs=True)
        return groups if groups is not None and groups.members.size and groups.size == 2 else None
    if text.startswith("{"):
        return _explicit(text, pairs=False)
    if match := _MESH.match(text):
        return _mesh(*match.groups())
    if match := _IOTA.match(text):
        return _iota(*match.groups())
    return None


def parse(text: str) -> Groups | None:
    """The groups stated in a line of HLO; None where it states none or they cannot be read."""
    match = _START.search(text)
    if not match:
        return None
    rest = text[match.end() :]
    if rest.startswith("{"):
        return parse_notation(match.group(1), _braces(rest, 0))
    for pattern in (_MESH, _IOTA):
        if notation := pattern.match(rest):
            return parse_notation(match.group(1), notation.group(0))
    return None
