"""What each core did when, read from the XSpace itself.

XProf sums op times; whether a collective was hidden behind compute, how much a core was busy in a step, and which core
lags needs the intervals.  Times are picoseconds from the earliest line of the plane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from experiments.ingest.exposure import OpKey, OpTime, op_times
from experiments.ingest.flights import read_flights
from experiments.ingest.intervals import Cover, Ps
from experiments.xplane import XEvent, XEventMetadata, XLine, XPlane, XSpace, XStat

CORE_PLANE = re.compile(r"^/device:(TPU|GPU):\d+$")

#: Parts of a step in the order in which time is given away: what runs beside compute costs nothing.
PARTS = ("compute", "collective", "input", "output")
CONTROL = "control"

_COLLECTIVE = (
    r"all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast|collective-matmul-comm"
)
_COLLECTIVE_CATEGORY = re.compile(rf"{_COLLECTIVE}|^(megacore )?(send|recv)(-done)?$")
_COLLECTIVE_NAME = re.compile(rf"^(ragged-)?({_COLLECTIVE}|async-collective|(send|recv)(-done)?(\.\d+)?$)")
_COLLECTIVE_KERNEL = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|memcpyp2p", re.I
)
_CONTROL = re.compile(r"^(while|conditional|call)([.\d-]|$)")
_FUSED_COLLECTIVE_NAME = re.compile(r"^async-collective")

#: Offsets and durations beyond this (13 days) are damage; sums of them would overflow.
_MAX_PS = 1 << 60
MAX_NS = _MAX_PS // 1000


def stat_value(plane: XPlane, stat: XStat) -> object:
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else None
    return plane.stat_metadata[value].name if kind == "ref_value" and value in plane.stat_metadata else value


def stat_ids(plane: XPlane, *names: str) -> dict[str, int]:
    return {meta.name: key for key, meta in plane.stat_metadata.items() if meta.name in names}


def core_planes(space: XSpace) -> list[XPlane]:
    """Planes of accelerator cores (TPU TensorCores, GPUs) on which anything happened."""
    return [plane for plane in space.planes if CORE_PLANE.match(plane.name) and any(p.events for p in plane.lines)]


@lru_cache(maxsize=65536)
def op_class(name: str, category: str) -> str:
    """`compute`, `collective`, `input`, `output` or `control` (loops and calls, whose ops are listed themselves).

    The category decides where there is one: a matrix product fused with an all-gather is named after it and is compute.
    """
    category = category.lower()
    if category in ("while", "conditional", "call") or (not category and _CONTROL.match(name)):
        return CONTROL
    if "infeed" in category or name.startswith("infeed"):
        return "input"
    if "outfeed" in category or name.startswith("outfeed"):
        return "output"
    if category:
        fused = _FUSED_COLLECTIVE_NAME.match(name)
        return "collective" if _COLLECTIVE_CATEGORY.search(category) or fused else "compute"
    return "collective" if _COLLECTIVE_NAME.match(name) else "compute"


class ImpossibleTime(ValueError):
    """An op that starts or lasts longer than any profile: the text names the plane."""


@dataclass(frozen=True)
class Steps:
    """Steps of one core: numbers and [starts, ends)."""

    numbers: tuple[int, ...]
    starts: Ps
    ends: Ps

    def __len__(self) -> int:
        return len(self.numbers)


NO_STEPS = Steps((), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class CoreTimeline:
    """One core's measured time.

    durations_s: per step.  parts_s: by `compute`, `collective`, `input`, `output`, `idle`, per step, exclusive: they
    sum to the duration; compute goes first, so `collective` is what compute did not hide.  Over the window (the steps,
    or first to last op without steps): window_s, busy_s (any op), communication_s (a collective op), collective_s
    (a collective in flight: also from its start op to its done op), exposed_s (in flight, and no other op ran).
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


@dataclass
class Events:
    """Op events of one core, all its lines together."""

    kind: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    starts: Ps = field(default_factory=lambda: np.zeros(0, np.int64))
    ends: Ps = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, lines: Iterable[XLine], base_ns: int) -> Events:
        columns = [line_events(line, base_ns) for line in lines]
        if not columns:
            return cls()
        table = np.concatenate(columns)
        return cls(table[:, 0], table[:, 1], table[:, 1] + table[:, 2])

    def cover(self, mask: np.ndarray) -> Cover:
        return Cover.of(self.starts[mask], self.ends[mask])


def line_events(line: XLine, base_ns: int) -> np.ndarray:
    """[n, 3] of metadata id, start and duration in ps; events with impossible times are left out."""
    shift_ns = line.timestamp_ns - base_ns
    if not 0 <= shift_ns < MAX_NS:
        return np.zeros((0, 3), np.int64)
    flat = np.fromiter(
        (value for event in line.events for value in (event.metadata_id, event.offset_ps, event.duration_ps)),
        np.int64,
        3 * len(line.events),
    )
    table = flat.reshape(-1, 3)
    table = table[((table[:, 1:] >= 0) & (table[:, 1:] < _MAX_PS)).all(axis=1)]
    table[:, 1] += shift_ns * 1000
    return table


def in_range(event: XEvent) -> bool:
    """Whether an event's times can be those of a profile."""
    return 0 <= event.offset_ps < _MAX_PS and 0 <= event.duration_ps < _MAX_PS


def base_ns(lines: Iterable[XLine]) -> int:
    return min((line.timestamp_ns for line in lines if line.events), default=0)


def op_lines(plane: XPlane) -> list[XLine]:
    """The lines whose events are ops: one on a TPU, one per stream on a GPU."""
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    return streams or [line for line in plane.lines if line.name == "XLA Ops"]


def step_line(plane: XPlane) -> XLine | None:
    return next((line for line in plane.lines if line.name == "Steps" and line.events), None)


def plane_steps(plane: XPlane, zero_ns: int) -> Steps:
    """Steps that the device itself marked, in order of time; numbers from the events' names where they are numbers."""
    line = step_line(plane)
    if line is None:
        return NO_STEPS
    table = line_events(line, zero_ns)
    table = table[table[:, 2] > 0]
    table = table[np.argsort(table[:, 1], kind="stable")]
    names = [plane.event_metadata[kind].name if kind in plane.event_metadata else "" for kind in table[:, 0].tolist()]
    numbers = [int(name) if name.isascii() and name.isdigit() and len(name) < 16 else -1 for name in names]
    if len(set(numbers)) < len(numbers) or -1 in numbers:
        numbers = list(range(len(numbers)))
    return Steps(tuple(numbers), table[:, 1], table[:, 1] + table[:, 2])


def annotated_steps(space: XSpace, zero_ns: int, last_end: int | None = None) -> Steps:
    """Steps from the program's own markers (`jax.profiler.StepTraceAnnotation`) on the host's threads.

    A step lasts from its marker to the next one, since a device works on after the marker's end; the last one to its
    marker's end, or to last_end (ps) where that is later.
    """
    found: dict[int, tuple[int, int]] = {}
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        ids = stat_ids(plane, "step_num")
        if not ids:
            continue
        for line in plane.lines:
            shift_ns = line.timestamp_ns - zero_ns
            if abs(shift_ns) >= MAX_NS:
                continue
            for event in line.events:
                for stat in event.stats:
                    if stat.metadata_id != ids["step_num"]:
                        continue
                    number = stat.int64_value or stat.uint64_value
                    start = event.offset_ps + shift_ns * 1000
                    if 0 <= event.duration_ps < _MAX_PS and abs(start) < _MAX_PS:
                        found.setdefault(int(number), (start, start + event.duration_ps))
    if not found:
        return NO_STEPS
    order = sorted(found, key=lambda number: found[number])
    starts = np.array([found[number][0] for number in order], np.int64)
    final = max(found[order[-1]][1], last_end or 0)
    ends = np.append(starts[1:], final)
    keep = ends > starts
    return Steps(tuple(n for n, ok in zip(order, keep.tolist(), strict=True) if ok), starts[keep], ends[keep])


def classes(plane: XPlane) -> dict[int, tuple[str, str]]:
    """(op name, class) by event metadata id."""
    ids = stat_ids(plane, "hlo_category")
    result: dict[int, tuple[str, str]] = {}
    on_gpu = ":GPU:" in plane.name
    for key, meta in plane.event_metadata.items():
        name = meta.display_name or meta.name
        category = _category(plane, meta, ids.get("hlo_category"))
        kind = op_class(name, category)
        if on_gpu and kind == "compute" and _COLLECTIVE_KERNEL.search(meta.name):
            kind = "collective"
        result[key] = (name, kind)
    return result


def _category(plane: XPlane, meta: XEventMetadata, stat_id: int | None) -> str:
    for stat in meta.stats:
        if stat.metadata_id == stat_id:
            return str(stat_value(plane, stat) or "")
    return ""


def read_core(plane: XPlane, host: str, steps: Steps | None = None) -> CoreTimeline | None:
    """The timeline of a core's plane, None where it holds no op.  steps: in place of those that the plane marks."""
    lines = op_lines(plane)
    asynchronous = [line for line in plane.lines if line.name == "Async XLA Ops"]
    marked = step_line(plane)
    zero_ns = base_ns([*lines, *asynchronous, *([marked] if marked else [])])
    if steps is None:
        steps = plane_steps(plane, zero_ns)
    events = Events.of(lines, zero_ns)
    if len(events.kind) < sum(len(line.events) for line in lines):
        raise ImpossibleTime(f"in plane {plane.name}, an op starts or lasts longer than {_MAX_PS / 8.64e16:.0f} days")
    kinds, programs = classes(plane), programs_of(plane)
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

    The op stands in the event's own stats, which are read for these kernels only.  events holds all events of lines.
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
        found = {stat.metadata_id: str(stat_value(plane, stat)) for stat in every[place].stats}
        op, program = found.get(wanted["hlo_op"], ""), found.get(wanted.get("program_id", -1), "")
        if op:
            key = known.setdefault((program, op), free + len(known))
            events.kind[place] = key
            kinds[key], programs[key] = (op, "collective"), program


def programs_of(plane: XPlane) -> dict[int, str]:
    """The program of each op, by event metadata id."""
    wanted = stat_ids(plane, "program_id").get("program_id")
    found: dict[int, str] = {}
    if wanted is None:
        return found
    for key, meta in plane.event_metadata.items():
        for stat in meta.stats:
            if stat.metadata_id == wanted:
                found[key] = str(stat_value(plane, stat))
                break
    return found


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
    covers: list[Cover] = []
    total = Cover.of(events.starts[:0], events.ends[:0])
    for part in PARTS:
        total = total.union(events.cover(masks[part]))
        covers.append(total)
    collective = events.cover(masks["collective"])
    others = events.cover(running & ~masks["collective"])
    running_collectives, flights = read_flights(
        (events.kind, events.starts, events.ends),
        kinds,
        texts or {},
        by_class["collective"],
        programs or {},
        None if in_flight is None else (in_flight.kind, in_flight.starts, in_flight.ends),
    )
    flying = Cover.of(flights.starts, flights.ends)

    first, last = int(events.starts[running].min()), int(events.ends[running].max())
    starts, ends = steps.starts, steps.ends
    window = Cover.of(starts, ends) if len(steps) else Cover.of(np.array([first]), np.array([last]))
    span = max(last, int(window.ends[-1])) - min(first, int(window.starts[0])) if len(window.ends) else last - first

    def inside(cover: Cover) -> float:
        return float(cover.within(window.starts, window.ends).sum()) * 1e-12

    parts: dict[str, tuple[float, ...]] = {}
    previous = np.zeros(len(steps), np.int64)
    for part, cover in zip(PARTS, covers, strict=True):
        covered = cover.within(starts, ends)
        if by_class[part] or part == "compute":
            parts[part] = tuple(((covered - previous) * 1e-12).tolist())
        previous = covered
    durations = ends - starts
    parts["idle"] = tuple(((durations - previous) * 1e-12).tolist())
    return CoreTimeline(
        name=name,
        host=host,
        numbers=steps.numbers,
        durations_s=tuple((durations * 1e-12).tolist()),
        parts_s=parts if len(steps) else {},
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
        ),
    )
