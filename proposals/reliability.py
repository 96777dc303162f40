"""How often stated confidences came true: results in groups of equal size, each with its interval.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

#: Fewer results than this in a group say nothing; more groups than that are not distinguished.
LEAST_IN_GROUP, MOST_GROUPS = 4, 6
_Z = 1.96


@dataclass(frozen=True)
class Group:
    """lowest, highest: stated confidences in it; stated: their mean; came: the share that got faster per token.
    low, high: 95 % interval of that share (Wilson 1927, which holds for few results too)."""

    lowest: float
    highest: float
    stated: float
    came: float
    low: float
    high: float
    results: int


def groups(pairs: Iterable[tuple[float, bool]]) -> tuple[Group, ...]:
    """pairs: stated confidence, 0 to 1, and whether it came.  Empty below LEAST_IN_GROUP results."""
    ordered = sorted(pairs)
    count = min(MOST_GROUPS, len(ordered) // LEAST_IN_GROUP)
    edges = [round(at * len(ordered) / count) for at in range(count + 1)] if count else []
    return tuple(_group(ordered[start:end]) for start, end in pairwise(edges))


def wilson(came: int, results: int) -> tuple[float, float]:
    """95 % interval of a share of so many results."""
    share, square = came / results, _Z * _Z / results
    middle = (share + square / 2) / (1 + square)
    half = _Z * sqrt(share * (1 - share) / results + square / (4 * results)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def _group(pairs: list[tuple[float, bool]]) -> Group:
    said, came = [pair[0] for pair in pairs], sum(pair[1] for pair in pairs)
    low, high = wilson(came, len(pairs))
    return Group(said[0], said[-1], sum(said) / len(said), came / len(said), low, high, len(pairs))
