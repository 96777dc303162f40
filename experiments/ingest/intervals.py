"""Sets of time intervals as arrays: union, and how much of a window a union covers.  Integer picoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ps = NDArray[np.int64]


@dataclass(frozen=True)
class IntervalUnion:
    """A union of intervals: disjoint, ascending [starts, ends)."""

    starts: Ps
    ends: Ps

    @classmethod
    def of(cls, starts: Ps, ends: Ps) -> IntervalUnion:
        """The union of any intervals; empty ones vanish."""
        keep = ends > starts
        starts, ends = starts[keep], ends[keep]
        if len(starts) == 0:
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reach[last])

    def union(self, other: IntervalUnion) -> IntervalUnion:
        return IntervalUnion.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    @property
    def total(self) -> int:
        return int((self.ends - self.starts).sum())

    def within(self, starts: Ps, ends: Ps) -> Ps:
        """Covered time in each of the windows [starts, ends)."""
        return self._until(ends) - self._until(starts)

    def _until(self, times: Ps) -> Ps:
        """Covered time before each of the times."""
        if len(self.starts) == 0:
            return np.zeros(len(times), np.int64)
        lengths = self.ends - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        index = np.searchsorted(self.starts, times, side="right")
        inside = np.maximum(index - 1, 0)
        part = np.clip(times - self.starts[inside], 0, lengths[inside])
        return before[inside] + np.where(index > 0, part, 0)
