"""What each core did when, read from the XSpace itself.

XProf sums op times; whether a collective was hidden behind compute, how much a core was busy in a step, and which core
lags needs the intervals.  Times are picoseconds from the earliest line of the plane.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from experiments.ingest.cut_steps import cut_off
from experiments.ingest.exposure import OpKey, OpTime, op_times
from experiments.ingest.in_flight import InFlight, read_flights
from experiments.ingest.intervals import IntervalUnion
from experiments.ingest.marks import Steps, executed_steps, plane_steps
from experiments.ingest.op_classes import CONTROL, PARTS, classes, stated
from experiments.ingest.planes import MAX_PS, Events, ImpossibleTime, base_ns, op_lines, stat_ids, stat_value, step_line
from experiments.step_profile import Op
from experiments.xplane import XLine, XPlane

#: The last execution is no step where it takes less than this part of the shortest interval between two.
WAITS = 0.5
_ASYNCHRONOUS = re.compile(r"-(start|done)([.\d-]|$)")


@dataclass(frozen=True)
class CoreTimeline:
    """One core's measured time.

    durations_s: per step.  parts_s: by `compute`, `collective`, `host_transfer`, `input`, `output`, `idle`, per step,
    exclusive: they sum to the duration; compute goes first, so `collective` is what compute did not hide.  Over the
    window (the steps, or first to last op without steps): window_s, busy_s (any op), communication_s (a collective op),
    collective_s (a collective in flight: also from its start op to its done op), exposed_s (in flight, and no other op
    ran),
    host_transfer_s (a copy from or to host memory in flight).
    op_s: time of all op events of the recording, those beside each other counted each.
    program: whose executions the steps are, where none was marked.  cut: number and time of steps that the recording
    cut off, and whether it begins in them; they are none of the steps.
    gaps_s: idle time over the window by cause (`Recorded.gaps`), empty where the launches are not known.
    span_s: from the first activity to the last, steps or not.  op_times: of the ops that matter, by (program, name).
    """

    name: str
    host: str
    numbers: tuple[int, ...]
    durations_s: tuple[float, ...]
    parts_s: dict[str, tuple[float, ...]]
    window_s: float
    busy_s: float
    communication_s: float
    collective_s: float
    exposed_s: float
    span_s: float
    ops: int
    events: int
    op_times: dict[OpKey, OpTime] = field(default_factory=dict)
    host_transfer_s: float = 0.0
    op_s: float = 0.0
    program: str = ""
    cut: tuple[tuple[int, float, bool], ...] = ()
    gaps_s: dict[str, float] = field(default_factory=dict)


def read_core(plane: XPlane, host: str, *, annotated: bool = False) -> CoreTimeline | None:
    """The timeline of a core's plane, None where it holds no op.

    annotated: the program marks its steps on the host.  Where neither it nor the device does, executions of the program
    stand for steps.
    """
    lines = op_lines(plane)
    asynchronous = [line for line in plane.lines if line.name == "Async XLA Ops"]
    marked = step_line(plane)
    zero_ns = base_ns([*lines, *asynchronous, *([marked] if marked else [])])
    steps = plane_steps(plane, zero_ns)
    if not len(steps) and not annotated:
        steps = executed_steps(plane, lines, zero_ns)
    events = Events.of(lines, zero_ns)
    if len(events.kind) < sum(len(line.events) for line in lines):
        raise ImpossibleTime(f"in plane {plane.name}, an op starts or lasts longer than {MAX_PS / 8.64e16:.0f} days")
    kinds, programs = classes(plane), stated(plane, "program_id")
    if ":GPU:" in plane.name:
        _name_kernels(plane, lines, events, kinds, programs)
    return measure(
        plane.name.removeprefix("/device:"),
        host,
        events,
        kinds,
        steps,
        texts={key: meta.name for key, meta in plane.event_metadata.items()},
        in_flight=Events.of(asynchronous, zero_ns),
        programs=programs,
    )


def _name_kernels(
    plane: XPlane,
    lines: Sequence[XLine],
    events: Events,
    kinds: dict[int, tuple[str, str]],
    programs: dict[int, str],
) -> None:
    """Give every collective kernel the name of its HLO op, in place: one NCCL kernel serves many ops.

    The op is in the event's own stats, which are read for these kernels only.  events holds all events of lines.
    """
    wanted = stat_ids(plane, "hlo_op", "program_id")
    kernels = [key for key, (_, kind) in kinds.items() if kind == "collective"]
    places = np.flatnonzero(np.isin(events.kind, np.array(kernels, np.int64)))
    if "hlo_op" not in wanted or not len(places):
        return
    known: dict[tuple[str, str], int] = {}
    free = max(kinds) + 1
    every = [event for line in lines for event in line.events]
    for place in places.tolist():
        values = {stat.metadata_id: str(stat_value(plane, stat)) for stat in every[place].stats}
        op, program = values.get(wanted["hlo_op"], ""), values.get(wanted.get("program_id", -1), "")
        if op:
            key = known.setdefault((program, op), free + len(known))
            events.kind[place] = key
            kinds[key], programs[key] = (op, "collective"), program


def measure(
    name: str,
    host: str,
    events: Events,
    kinds: dict[int, tuple[str, str]],
    steps: Steps,
    *,
    texts: dict[int, str] | None = None,
    in_flight: Events | None = None,
    programs: dict[int, str] | None = None,
) -> CoreTimeline | None:
    """Merge the op events of one core into what `CoreTimeline` says."""
    used = np.unique(events.kind)
    by_class: dict[str, list[int]] = {part: [] for part in (*PARTS, CONTROL)}
    for key in used.tolist():
        by_class[kinds.get(key, ("", "compute"))[1]].append(key)
    masks = {part: np.isin(events.kind, keys) for part, keys in by_class.items()}
    running = ~masks[CONTROL]
    if not running.any():
        return None
    steps, cut = _whole(steps, events, running)
    covers: list[IntervalUnion] = []
    total = IntervalUnion.of(events.starts[:0], events.ends[:0])
    for part in PARTS:
        total = total.union(events.cover(masks[part]))
        covers.append(total)
    collective = events.cover(masks["collective"])
    others = events.cover(running & ~masks["collective"])

    def flown(wanted: Sequence[int], group: str) -> tuple[InFlight, InFlight]:
        return read_flights(events, kinds, texts or {}, wanted, group, programs or {}, in_flight or Events())

    running_collectives, flights = flown(by_class["collective"], "collective")
    _, transfers = flown(by_class["host_transfer"], "host_transfer")
    asynchronous = [key for key in by_class["compute"] if _ASYNCHRONOUS.search(kinds.get(key, ("",))[0])]
    _, copies = flown(asynchronous, "compute")
    flying = IntervalUnion.of(flights.starts, flights.ends)

    first, last = int(events.starts[running].min()), int(events.ends[running].max())
    window = window_of(steps, first, last)
    span = max(last, int(window.ends[-1])) - min(first, int(window.starts[0])) if len(window.ends) else last - first

    def inside(cover: IntervalUnion) -> float:
        return float(cover.within(window.starts, window.ends).sum()) * 1e-12

    layers = [(part, cover) for part, cover in zip(PARTS, covers, strict=True) if by_class[part] or part == "compute"]
    return CoreTimeline(
        name=name,
        host=host,
        numbers=steps.numbers,
        durations_s=tuple(((steps.ends - steps.starts) * 1e-12).tolist()),
        parts_s=parts_of(steps, layers),
        window_s=window.total * 1e-12,
        busy_s=inside(total),
        communication_s=inside(collective),
        collective_s=inside(flying),
        exposed_s=inside(flying.union(others)) - inside(others),
        span_s=span * 1e-12,
        ops=len(used),
        events=int(running.sum()),
        op_times=op_times(
            events.kind[running],
            events.starts[running],
            events.ends[running],
            {key: ((programs or {}).get(key, ""), kinds.get(key, ("", ""))[0]) for key in used.tolist()},
            running_collectives,
            flights,
            others,
            window,
            transfers.plus(copies),
        ),
        host_transfer_s=inside(IntervalUnion.of(transfers.starts, transfers.ends)),
        op_s=float((events.ends - events.starts)[running].sum()) * 1e-12,
        program=steps.program,
        cut=cut,
    )


def window_of(steps: Steps, first: int, last: int) -> IntervalUnion:
    """The steps, or from the first activity to the last."""
    if len(steps):
        return IntervalUnion.of(steps.starts, steps.ends)
    return IntervalUnion.of(np.array([first]), np.array([last]))


def parts_of(steps: Steps, layers: Sequence[tuple[str, IntervalUnion]]) -> dict[str, tuple[float, ...]]:
    """Return what each layer adds to those before it in each step, in seconds, and what is left as `idle`; empty
    without steps.  layers: each holds those before it."""
    parts: dict[str, tuple[float, ...]] = {}
    before = np.zeros(len(steps), np.int64)
    for part, cover in layers:
        covered = cover.within(steps.starts, steps.ends)
        parts[part] = tuple(((covered - before) * 1e-12).tolist())
        before = covered
    parts["idle"] = tuple(((steps.ends - steps.starts - before) * 1e-12).tolist())
    return parts if len(steps) else {}


def _whole(steps: Steps, events: Events, running: np.ndarray) -> tuple[Steps, tuple[tuple[int, float, bool], ...]]:
    """(the steps recorded as a whole, those that were cut off as in `CoreTimeline.cut`)."""
    if len(steps) < 2:
        return steps, ()
    begun = np.sort(events.starts[running])
    counts = np.searchsorted(begun, steps.ends) - np.searchsorted(begun, steps.starts)
    times = (steps.ends - steps.starts) * 1e-12
    work = events.cover(running).within(steps.starts, steps.ends) * 1e-12
    # What a program waits for after its last execution was not recorded.
    count = len(steps) - bool(steps.program and times[-1] < WAITS * times[:-1].min())
    places = cut_off(times[:count].tolist(), work[:count].tolist(), counts[:count].tolist())
    places += range(count, len(steps))
    return steps.without(places), tuple((steps.numbers[i], float(times[i]), 2 * i < len(times)) for i in places)


def over_cores(cores: Sequence[CoreTimeline], ops: Sequence[Op], ids: Sequence[str]) -> list[Op]:
    """The ops with their time in flight, exposed time and spread over cores.

    ids: each op's program id.  Where the tables cover fewer steps than the timelines, times are scaled to the op's
    occurrences in the tables.
    """
    by_key: dict[OpKey, list[tuple[str, OpTime]]] = defaultdict(list)
    for core in cores:
        for key, time in core.op_times.items():
            by_key[key].append((f"{core.host} {core.name}".strip(), time))
    by_name: dict[str, list[OpKey]] = defaultdict(list)
    for key in by_key:
        by_name[key[1]].append(key)
    completed: list[Op] = []
    for op, program in zip(ops, ids, strict=True):
        key = (program, op.name)
        if key not in by_key and by_name[op.name] == [("", op.name)]:
            key = ("", op.name)  # recordings of a CPU do not say the program
        timed = by_key.get(key, [])
        total = reduce(OpTime.plus, (time for _, time in timed), OpTime(0, 0.0))
        if total.count:
            scale = op.occurrences / total.count if op.occurrences else 1.0
            slowest, most = max(timed, key=lambda item: item[1].time_s)
            op = replace(
                op,
                in_flight_s=None if total.in_flight_s is None else total.in_flight_s * scale,
                exposed_s=op.exposed_s if total.exposed_s is None else total.exposed_s * scale,
                core_max_s=most.time_s * scale,
                core_min_s=min(time.time_s for _, time in timed) * scale,
                core_count=len(timed),
                slowest_core=slowest,
            )
        completed.append(op)
    return completed
