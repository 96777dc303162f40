"""The events of an XSpace for the event store: ops of each core, asynchronous ops from start to done, host threads."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from experiments.ingest.in_flight import pairs
from experiments.ingest.marks import Annotations, Steps, executed_steps, plane_steps
from experiments.ingest.op_classes import CONTROL, classes, stated
from experiments.ingest.planes import (
    Events,
    base_ns,
    core_planes,
    line_events,
    op_lines,
    stat_ids,
    stat_value,
    step_line,
)
from experiments.trace import ASYNC, HOST, OPS, TraceBuilder
from experiments.xplane import XLine, XPlane, XSpace

#: Beyond this many events, kernels of a GPU keep their own names: their ops are in each event's stats.
_MOST_NAMED = 3_000_000
#: Host threads come last; of a plane with more events than this, none: they are Python calls.
_MOST_HOST_EVENTS = 300_000
_NO_OP = -2

_COPY_NAME = re.compile(r"^(copy|memcpy|memset|transpose)|copybuffer|fillbuffer", re.I)
_COPY_CATEGORY = re.compile(r"^(copy|data formatting|async-?copy)", re.I)
_HOST_CATEGORY = re.compile(r"host (send|recv|transfer)|host-transfer", re.I)


def add_host(builder: TraceBuilder, space: XSpace, host: str, *, regrouped: XSpace | None = None) -> None:
    """Add one host's profile.

    regrouped: of a CPU recording, its device planes (`cpu.regroup`), whose threads are one track per device.
    """
    planes = core_planes(space if regrouped is None else regrouped)
    on_cpu = regrouped is not None
    if not planes:
        return
    used = [line for plane in planes for line in plane.lines if line.events]
    zero_ns = base_ns(used)
    room = _MOST_NAMED
    annotations = Annotations(space)
    for plane in planes:
        room -= _add_core(builder, annotations, plane, host, zero_ns, on_cpu, room)
    if not on_cpu:
        _add_threads(builder, space, host, zero_ns)


def _add_core(
    builder: TraceBuilder, annotations: Annotations, plane: XPlane, host: str, zero_ns: int, on_cpu: bool, room: int
) -> int:
    """Add a core; the number of its events."""
    name = plane.name.removeprefix("/device:")
    core = builder.add_core(name.replace("GPU", "CPU") if on_cpu else name, host)
    lines = op_lines(plane)
    tables = [line_events(line, zero_ns) for line in lines]
    count = sum(len(table) for table in tables)
    names = _Names(builder, plane)
    on_gpu = ":GPU:" in plane.name  # CPU recordings are regrouped to look like it
    for line, table in zip(lines, tables, strict=True):
        named = on_gpu and count <= room and len(table) == len(line.events)
        ids = names.with_ops(line, table[:, 0]) if named else names.of(table[:, 0])
        keep = ids >= 0
        track = line.name if on_gpu and not on_cpu else ""
        builder.add_events(core, OPS, table[keep, 1], table[keep, 2], ids[keep], track=track)
    in_flight = [line_events(line, zero_ns) for line in plane.lines if line.name == "Async XLA Ops"]
    if any(len(table) for table in in_flight):
        table = np.concatenate(in_flight)
        ids = names.of(table[:, 0])
        keep = ids >= 0
        builder.add_events(core, ASYNC, table[keep, 1], table[keep, 2], ids[keep])
    elif not on_cpu:
        _add_flights(builder, core, plane, np.concatenate(tables) if tables else np.zeros((0, 3), np.int64), names)
    steps = _steps(annotations, plane, zero_ns, tables)
    if len(steps):
        builder.add_steps(core, steps.numbers, steps.starts, steps.ends)
    return count


def _add_flights(builder: TraceBuilder, core: int, plane: XPlane, table: np.ndarray, names: _Names) -> None:
    """Asynchronous ops from their start op to their done op, where the plane has no line of them."""
    kinds = names.classes
    texts = {key: meta.name for key, meta in plane.event_metadata.items()}
    events = Events(table[:, 0], table[:, 1], table[:, 1] + table[:, 2])
    for _, done, starts, ends in pairs(events, kinds, texts, names.programs):
        ids = names.of(np.full(len(starts), done, np.int64))
        builder.add_events(core, ASYNC, starts, ends - starts, ids)


def _steps(annotations: Annotations, plane: XPlane, zero_ns: int, tables: Iterable[np.ndarray]) -> Steps:
    if step_line(plane) is not None:
        return plane_steps(plane, zero_ns)
    last = max((int((table[:, 1] + table[:, 2]).max()) for table in tables if len(table)), default=0)
    steps = annotations.steps(zero_ns, last)
    return steps if len(steps) else executed_steps(plane, op_lines(plane), zero_ns)


class _Names:
    """Names of a plane's events by metadata id; control flow has none, since its ops are events themselves."""

    def __init__(self, builder: TraceBuilder, plane: XPlane) -> None:
        self._builder, self._plane = builder, plane
        self.classes = classes(plane)
        self.programs = stated(plane, "program_id")
        self._categories = stated(plane, "hlo_category")
        self._known: dict[int, int] = {}
        self._by_op: dict[tuple[int, str, str], int] = {}

    def of(self, kinds: np.ndarray) -> np.ndarray:
        """[n] indices of names for [n] metadata ids, −1 for control flow."""
        used, place = np.unique(kinds, return_inverse=True)
        return np.array([self._one(key) for key in used.tolist()], np.int64)[place] if len(used) else used

    def _one(self, key: int) -> int:
        if key not in self._known:
            name, group = self.classes.get(key, (f"event {key}", "compute"))
            self._known[key] = (
                -1 if group == CONTROL else self._builder.name(name, self.kind(key), program=self.programs.get(key, ""))
            )
        return self._known[key]

    def with_ops(self, line: XLine, kinds: np.ndarray) -> np.ndarray:
        """The same indices where kernels say of which op they are: a kernel's name, with the key of that op."""
        wanted = stat_ids(self._plane, "hlo_op", "program_id", "hlo_module")
        op_id, program_id = wanted.get("hlo_op"), wanted.get("program_id", wanted.get("hlo_module"))
        if op_id is None:
            return self.of(kinds)
        refs = {key: meta.name for key, meta in self._plane.stat_metadata.items()}
        result = np.full(len(kinds), _NO_OP, np.int64)
        for place, event in enumerate(line.events):
            op = program = ""
            for stat in event.stats:
                if stat.metadata_id == op_id:
                    op = refs.get(stat.ref_value, "") if stat.ref_value else stat.str_value
                elif stat.metadata_id == program_id:
                    program = str(stat_value(self._plane, stat))
            if op:
                key = (int(kinds[place]), op, program)
                if key not in self._by_op:
                    name = self.classes.get(key[0], (op, ""))[0]
                    self._by_op[key] = self._builder.name(name, self.kind(key[0]), program=program, op=op)
                result[place] = self._by_op[key]
        rest = result == _NO_OP
        result[rest] = self.of(kinds[rest])
        return result

    def kind(self, key: int) -> str:
        """Of `experiments.trace.KINDS`."""
        name, group = self.classes.get(key, ("", "compute"))
        return event_kind(name, group, self._categories.get(key, ""))


def event_kind(name: str, group: str, category: str) -> str:
    """The kind of an op.  group: its class (`op_classes`); category: XProf's."""
    if group != "compute":
        return group
    if _HOST_CATEGORY.search(category):
        return "host_transfer"
    return "copy" if _COPY_NAME.match(name) or _COPY_CATEGORY.match(category) else "compute"


def _add_threads(builder: TraceBuilder, space: XSpace, host: str, zero_ns: int) -> None:
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        lines = [line for line in plane.lines if line.events and not line.name.lower().startswith("python")]
        if not lines or sum(len(line.events) for line in lines) > _MOST_HOST_EVENTS:
            continue
        core = builder.add_core("Host", host)
        for line in lines:
            shift = (line.timestamp_ns - zero_ns) * 1000
            rows = np.array([(e.metadata_id, e.offset_ps, e.duration_ps) for e in line.events], np.int64).reshape(-1, 3)
            used, place = np.unique(rows[:, 0], return_inverse=True)
            texts = [plane.event_metadata[key].name if key in plane.event_metadata else "" for key in used.tolist()]
            ids = np.array([builder.name(text or "event", "host", op=None) for text in texts])
            builder.add_events(core, HOST, rows[:, 1] + shift, rows[:, 2], ids[place], track=line.name or str(line.id))
