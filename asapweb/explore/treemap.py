"""A squarified treemap as rectangles in percent, so that a page draws it as SVG without scripts or inline styles.

Source: Bruls, Huizing, van Wijk, Squarified Treemaps (2000): rows are filled while that makes their rectangles squarer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Width over height of the picture, which decides what is square.
ASPECT = 1.5


@dataclass(frozen=True)
class Rectangle:
    """Item `index` at x, y with width and height, all in percent of the whole."""

    index: int
    x: float
    y: float
    width: float
    height: float


def treemap(values: Sequence[float]) -> list[Rectangle]:
    """Rectangles whose areas are to each other as the values; those of no size are left out."""
    items = sorted(((value, index) for index, value in enumerate(values) if value > 0), reverse=True)
    total = sum(value for value, _ in items)
    if not total:
        return []
    width, height = ASPECT * 100.0, 100.0
    area = width * height / total
    x = y = 0.0
    rectangles: list[Rectangle] = []
    left = [(value * area, index) for value, index in items]
    while left:
        side = min(width - x, height - y)
        row = _row(left, side)
        thick = sum(size for size, _ in row) / side
        at = y if width - x >= height - y else x
        for size, index in row:
            long = size / thick
            if width - x >= height - y:
                rectangles.append(Rectangle(index, x / ASPECT, at, thick / ASPECT, long))
            else:
                rectangles.append(Rectangle(index, at / ASPECT, y, long / ASPECT, thick))
            at += long
        if width - x >= height - y:
            x += thick
        else:
            y += thick
        left = left[len(row) :]
    return rectangles


def _row(left: Sequence[tuple[float, int]], side: float) -> list[tuple[float, int]]:
    """As many of the largest as make the worst rectangle of the row squarer."""
    row = [left[0]]
    for item in left[1:]:
        if _worst([*row, item], side) > _worst(row, side):
            break
        row.append(item)
    return row


def _worst(row: Sequence[tuple[float, int]], side: float) -> float:
    total = sum(size for size, _ in row)
    return max(max(side**2 * size / total**2, total**2 / (side**2 * size)) for size, _ in row)
