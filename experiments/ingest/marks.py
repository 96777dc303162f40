"""Steps of a core: as the device or the program marked them, else the executions of the program that takes most of the
time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from experiments.ingest.intervals import Ps
from experiments.ingest.planes import MAX_NS, MAX_PS, line_events, stat_ids, stat_value, step_line
from experiments.xplane import XLine, XPlane, XSpace
from formatting.numbers import whole_number


@dataclass(frozen=True)
class Steps:
    """Steps of one core, or as a host marks them: numbers and [starts, ends).

    program: whose executions they are, where no step was marked.  how: what of a host marks them.
    """

    numbers: tuple[int, ...]
    starts: Ps
    ends: Ps
    program: str = ""
    how: str = ""

    def __len__(self) -> int:
        return len(self.numbers)

    def without(self, places: Sequence[int]) -> Steps:
        kept = [place for place in range(len(self)) if place not in places]
        numbers = tuple(self.numbers[place] for place in kept)
        return Steps(numbers, self.starts[kept], self.ends[kept], self.program)


#: What marks steps: a range around what a benchmark measures, a sequence of kernels that a device runs again and again.
MEASURED, REPEATED = "the program's measured range", "executions of one sequence of kernels"
ENGINE = "a serving engine's iterations"
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


MODULES_LINE = "XLA Modules"
#: Fewer executions say nothing about a period.
_LEAST_RUNS = 3
#: The program must take this part of the time of all programs.
_LEAST_SHARE = 0.5
#: Executions at intervals that vary by more (standard deviation over mean) are of different work, and no steps.
MOST_SPREAD = 0.5
#: Above this, the events of a GPU are not read one by one.
_MOST_KERNELS = 400_000
#: Part of the program's time in ops whose number of runs is a multiple of the program's.
_REGULAR = 0.9
_PROGRAM_ID = re.compile(r"\(\d+\)$")


@dataclass(frozen=True)
class Runs:
    """Executions of one program: its name, [starts, ends) in order, and the time in it."""

    program: str
    starts: Ps
    ends: Ps
    time_ps: int


def executed_steps(plane: XPlane, lines: Sequence[XLine], zero_ns: int) -> Steps:
    """A step from each execution to the next, the last one to its own end; none where no program clearly repeats.

    lines: the plane's lines of ops.
    """
    line = next((line for line in plane.lines if line.name == MODULES_LINE and line.events), None)
    programs = _module_runs(plane, line, zero_ns) if line is not None else _kernel_runs(plane, lines, zero_ns)
    if not programs:
        return NO_STEPS
    most = max(programs, key=lambda runs: runs.time_ps)
    if most.time_ps < _LEAST_SHARE * sum(runs.time_ps for runs in programs) or len(most.starts) < _LEAST_RUNS:
        return NO_STEPS
    periods = np.diff(most.starts)
    if periods.std() > MOST_SPREAD * periods.mean():
        return NO_STEPS
    ends = np.append(most.starts[1:], most.ends[-1])
    return Steps(tuple(range(len(most.starts))), most.starts, ends, program=most.program)


def _module_runs(plane: XPlane, line: XLine, zero_ns: int) -> list[Runs]:
    table = line_events(line, zero_ns)
    table = table[np.argsort(table[:, 1], kind="stable")]
    programs: list[Runs] = []
    for key in np.unique(table[:, 0]).tolist():
        own = table[table[:, 0] == key]
        name = plane.event_metadata[key].name if key in plane.event_metadata else ""
        programs.append(Runs(_PROGRAM_ID.sub("", name), own[:, 1], own[:, 1] + own[:, 2], int(own[:, 2].sum())))
    return programs


def _kernel_runs(plane: XPlane, lines: Sequence[XLine], zero_ns: int) -> list[Runs]:
    """Executions by the kernels of each program: it runs as often as the op of it that runs least."""
    ids = stat_ids(plane, "hlo_module", "hlo_op")
    if len(ids) < 2 or sum(len(line.events) for line in lines) > _MOST_KERNELS:
        return []
    # Programs may share a name; their ids differ.
    wanted = {*ids.values(), (identity := stat_ids(plane, "program_id").get("program_id"))}
    programs: dict[tuple[str, str], dict[str, list[tuple[int, int]]]] = {}
    for line in lines:
        shift = (line.timestamp_ns - zero_ns) * 1000
        for event in line.events:
            said = {stat.metadata_id: stat for stat in event.stats if stat.metadata_id in wanted}
            if said.keys() >= set(ids.values()):
                module, op = (str(stat_value(plane, said[ids[name]])) for name in ("hlo_module", "hlo_op"))
                start = event.offset_ps + shift
                program = str(stat_value(plane, said[identity])) if identity in said else ""
                programs.setdefault((module, program), {}).setdefault(op, []).append((start, start + event.duration_ps))
    return [runs for (name, _), ops in programs.items() if (runs := _of_ops(name, ops)) is not None]


def _of_ops(program: str, ops: Mapping[str, list[tuple[int, int]]]) -> Runs | None:
    times = {op: sum(end - start for start, end in spans) for op, spans in ops.items()}
    total = sum(times.values())
    least = min(len(spans) for spans in ops.values())
    # Kernels of one op follow each other; a loop runs its ops several times per execution.
    regular = sum(times[op] for op, spans in ops.items() if len(spans) % least == 0)
    if total <= 0 or regular < _REGULAR * total:
        return Runs(program, np.zeros(0, np.int64), np.zeros(0, np.int64), total)
    first = min((min(spans) for spans in ops.values() if len(spans) == least), key=lambda span: span[0])
    anchor = next(sorted(spans) for spans in ops.values() if len(spans) == least and min(spans) == first)
    last_end = max(end for spans in ops.values() for _, end in spans)
    starts = np.array([start for start, _ in anchor], np.int64)
    return Runs(program, starts, np.append(starts[1:], max(last_end, anchor[-1][1])), total)
