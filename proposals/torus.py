"""A mesh laid on its topology, as a picture: which chips talk to a chosen one along each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, prod, sqrt
from typing import Any

from experiments.bars import canonical_role
from perfmodel.chips import load_chips
from proposals.candidate import MeshAndChanges

#: More chips than this are dots too small to read.
MAX_CHIPS = 1024
_CELL, _CHIP = 8.0, 5.0
_SHADES = {"model": "m", "seq": "s", "expert": "s", "pipeline": "s"}


@dataclass(frozen=True)
class Drawing:
    """SVG paths by class: `chipd` every chip, `m` `s` the groups, `d` outlines; width and height of the view box.

    groups: (class, axis names, size) of the axes larger than one, for the legend and for readers of the text.
    """

    width: float
    height: float
    paths: list[tuple[str, str]]
    frames: list[tuple[float, float, float, float]]
    center: str
    groups: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def shown_width(self) -> int:
        """Pixels: a few chips are not blown up, many are made to fit."""
        return round(min(132.0, self.box_width * 1.9))

    @property
    def box_width(self) -> float:
        return self.width + 4

    @property
    def box_height(self) -> float:
        return self.height + 4

    @property
    def text(self) -> str:
        parts = [f"a {names} group is {size} chips" for _, names, size in self.groups]
        return ", ".join(parts) or "no axis is larger than one"


def unravel(index: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major coordinates."""
    indices = []
    for size in reversed(sizes):
        indices.append(index % size)
        index //= size
    return tuple(reversed(indices))


def groups_of(chip: int, axes: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Chips that share every coordinate with `chip` but one axis's, by axis; axes of size one are left out."""
    sizes = [size for _, size in axes]
    groups: dict[str, list[int]] = {}
    stride = 1
    here = unravel(chip, sizes)
    for place in range(len(axes) - 1, -1, -1):
        axis, size = axes[place]
        if size > 1:
            first = chip - here[place] * stride
            groups[axis] = [first + step * stride for step in range(size)]
        stride *= size
    return groups


def draw(
    topology: Sequence[int], ici: Mapping[str, int], roles: Mapping[str, str] | None = None, *, gpu: bool = False
) -> Drawing | None:
    """The mesh `ici` (major to minor) laid row-major on `topology`; None where they differ in size or are too large.

    gpu: topology is [GPUs per NVLink domain, domains]; a domain is drawn as a row.
    """
    dims = list(reversed(topology)) if gpu else list(topology)
    chips = prod(dims)
    axes = [(axis, int(size)) for axis, size in ici.items()]
    if not dims or chips > MAX_CHIPS or chips < 2 or prod(size for _, size in axes) != chips:
        return None
    grid = _Grid(*_layout(dims))
    chosen = _middle(dims)
    members_of = groups_of(chosen, axes)
    by_class: dict[str, list[int]] = {"s": [], "m": [], "d": []}
    legend: dict[str, list[tuple[str, int]]] = {}
    for axis, members in members_of.items():
        css = _SHADES.get(canonical_role(axis, roles), "d")
        by_class[css] += members
        legend.setdefault(css, []).append((axis, len(members)))
    paths = [("chipd", _all_chips(grid))]
    for css in ("s", "m"):
        if by_class[css]:
            paths.append((css, "".join(_square(*grid.place(chip)) for chip in sorted(set(by_class[css])))))
    if by_class["d"]:
        paths.append(("d", "".join(_square(*grid.place(chip), grow=1.0) for chip in sorted(set(by_class["d"])))))
    groups: list[tuple[str, str, int]] = [
        (css, " and ".join(axis for axis, _ in legend[css]), legend[css][0][1])
        for css in ("m", "s", "d")
        if css in legend
    ]
    return Drawing(grid.width, grid.height, paths, grid.frames, _square(*grid.place(chosen), grow=1.5), groups)


@dataclass(frozen=True)
class _Grid:
    """Chips in rows and columns, plane beside plane; lengths in units of the drawing."""

    rows: int
    columns: int
    planes: int

    @property
    def across(self) -> int:
        return ceil(sqrt(self.planes))

    @property
    def width(self) -> float:
        return self.across * (self.columns * _CELL + 4 + _CELL) - _CELL

    @property
    def height(self) -> float:
        return ceil(self.planes / self.across) * (self.rows * _CELL + 4 + _CELL) - _CELL

    @property
    def frames(self) -> list[tuple[float, float, float, float]]:
        return [(*self._corner(n), self.columns * _CELL + 4, self.rows * _CELL + 4) for n in range(self.planes)]

    def place(self, chip: int) -> tuple[float, float]:
        plane, rest = divmod(chip, self.rows * self.columns)
        row, column = divmod(rest, self.columns)
        x, y = self._corner(plane)
        return x + 2 + column * _CELL + (_CELL - _CHIP) / 2, y + 2 + row * _CELL + (_CELL - _CHIP) / 2

    def _corner(self, plane: int) -> tuple[float, float]:
        down, right = divmod(plane, self.across)
        return right * (self.columns * _CELL + 4 + _CELL), down * (self.rows * _CELL + 4 + _CELL)


@lru_cache(maxsize=64)
def _all_chips(grid: _Grid) -> str:
    """Their path: a page draws the same chips for every proposal."""
    return "".join(_square(*grid.place(chip)) for chip in range(grid.planes * grid.rows * grid.columns))


def _layout(dims: Sequence[int]) -> tuple[int, int, int]:
    """Rows, columns and planes: the last two dimensions are a plane, the first ones count planes."""
    if len(dims) == 1:
        columns = next((c for c in range(min(16, dims[0]), 0, -1) if dims[0] % c == 0), dims[0])
        return dims[0] // columns, columns, 1
    return dims[-2], dims[-1], prod(dims[:-2])


def _middle(dims: Sequence[int]) -> int:
    index = 0
    for dim in dims:
        index = index * dim + dim // 3
    return index


def _square(x: float, y: float, grow: float = 0.0) -> str:
    size = _CHIP + 2 * grow
    return f"M{x - grow:g} {y - grow:g}h{size:g}v{size:g}h-{size:g}z"


def before_and_after(config: Mapping[str, Any], of: MeshAndChanges) -> tuple[Drawing | None, Drawing | None]:
    """The configured mesh and a proposed one: on the same topology, or on the smaller one that its changes name."""
    hardware, old = config.get("hardware") or {}, config.get("mesh") or {}
    topology = hardware.get("topology") or []
    roles = old.get("axis_roles") or {}
    chip = load_chips().get(str(hardware.get("chip", "")))
    gpu = chip is None or chip.kind == "gpu"
    first = draw(topology, old.get("ici") or {}, roles, gpu=gpu)
    return first, draw(of.changes.get("topology") or topology, of.mesh.get("ici") or {}, roles, gpu=gpu)
