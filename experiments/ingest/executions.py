"""Steps of a profile that marks none: the executions of the program in which the device spent most of its time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.ingest.intervals import Ps
from experiments.ingest.marks import NO_STEPS, Steps
from experiments.ingest.planes import line_events, stat_ids, stat_value
from experiments.xplane import XLine, XPlane

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
