"""Steps of a core: as the device or the program marked them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from experiments.ingest.intervals import Ps
from experiments.ingest.planes import MAX_NS, MAX_PS, line_events, stat_ids, step_line
from experiments.xplane import XPlane, XSpace
from formatting.numbers import whole_number


@dataclass(frozen=True)
class Steps:
    """Steps of one core: numbers and [starts, ends).

    program: whose executions they are, where no step was marked.
    """

    numbers: tuple[int, ...]
    starts: Ps
    ends: Ps
    program: str = ""

    def __len__(self) -> int:
        return len(self.numbers)

    def without(self, places: Sequence[int]) -> Steps:
        kept = [place for place in range(len(self)) if place not in places]
        numbers = tuple(self.numbers[place] for place in kept)
        return Steps(numbers, self.starts[kept], self.ends[kept], self.program)


NO_STEPS = Steps((), np.zeros(0, np.int64), np.zeros(0, np.int64))


def plane_steps(plane: XPlane, zero_ns: int) -> Steps:
    """Steps that the device itself marked, in order of time; numbers from the events' names where they are numbers."""
    line = step_line(plane)
    if line is None:
        return NO_STEPS
    table = line_events(line, zero_ns)
    table = table[table[:, 2] > 0]
    table = table[np.argsort(table[:, 1], kind="stable")]
    names = [plane.event_metadata[kind].name if kind in plane.event_metadata else "" for kind in table[:, 0].tolist()]
    numbers = [number for name in names if (number := whole_number(name, digits=15)) is not None]
    if len(set(numbers)) < len(names):
        numbers = list(range(len(names)))
    return Steps(tuple(numbers), table[:, 1], table[:, 1] + table[:, 2])


class Annotations:
    """Steps as the program marked them (`jax.profiler.StepTraceAnnotation`) on the host's threads; looked for once."""

    def __init__(self, space: XSpace) -> None:
        self._space = space

    @cached_property
    def _marks(self) -> list[tuple[int, int, int, int]]:
        """(number, the line's ns, offset and duration in ps) of each."""
        marks = []
        for plane in self._space.planes:
            wanted = stat_ids(plane, "step_num").get("step_num") if plane.name.startswith("/host:CPU") else None
            if wanted is None:
                continue
            for line in plane.lines:
                for event in line.events:
                    for stat in event.stats:
                        if stat.metadata_id == wanted:
                            number = int(stat.int64_value or stat.uint64_value)
                            marks.append((number, line.timestamp_ns, event.offset_ps, event.duration_ps))
        return marks

    def steps(self, zero_ns: int, last_end: int | None = None) -> Steps:
        """A step lasts from its marker to the next one, since a device works on after the marker's end; the last one to
        its marker's end, or to last_end (ps) where that is later."""
        bounds: dict[int, tuple[int, int]] = {}
        for number, line_ns, offset_ps, duration_ps in self._marks:
            shift_ns = line_ns - zero_ns
            start = offset_ps + shift_ns * 1000
            if abs(shift_ns) < MAX_NS and 0 <= duration_ps < MAX_PS and abs(start) < MAX_PS:
                bounds.setdefault(number, (start, start + duration_ps))
        if not bounds:
            return NO_STEPS
        order = sorted(bounds, key=lambda number: bounds[number])
        starts = np.array([bounds[number][0] for number in order], np.int64)
        final = max(bounds[order[-1]][1], last_end or 0)
        ends = np.append(starts[1:], final)
        keep = ends > starts
        return Steps(tuple(n for n, ok in zip(order, keep.tolist(), strict=True) if ok), starts[keep], ends[keep])
