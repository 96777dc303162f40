"""A likely topology of so many chips."""

from __future__ import annotations

from perfmodel.chips import Chip
from perfmodel.space import factorisations


def near(chip: Chip, chips: int) -> list[int]:
    """Topology of so many chips as one would order them: near a cube on TPUs, [per domain, domains] on GPUs."""
    if chip.nvlink_domain:
        within = chips if chips <= chip.nvlink_domain else chip.nvlink_domain
        return [within, -(-chips // within)]
    return near_cube(chips, chip.ici_axes or 1)


def near_cube(count: int, dimensions: int) -> list[int]:
    """`count` as a product of `dimensions` whole numbers whose sum is least, ascending, ones last: 2×2×1, 4×4×8."""
    ways = factorisations(count, dimensions)
    best = sorted(int(size) for size in ways[ways.sum(axis=1).argmin()])
    return [size for size in best if size > 1] + [size for size in best if size == 1]
