"""Planes, lines and events of an XSpace as arrays.  Times are picoseconds from the earliest line of the plane."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.ingest.intervals import IntervalUnion, Ps
from experiments.xplane import XEvent, XLine, XPlane, XSpace, XStat
from formatting.numbers import whole_number

CORE_PLANE = re.compile(r"^/device:(TPU|GPU):\d+$")

#: Offsets and durations beyond this (13 days) are damage; sums of them would overflow.
MAX_PS = 1 << 60
MAX_NS = MAX_PS // 1000


class ImpossibleTime(ValueError):
    """An op that starts or lasts longer than any profile: the text names the plane."""


def stat_value(plane: XPlane, stat: XStat) -> object:
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else None
    return plane.stat_metadata[value].name if kind == "ref_value" and value in plane.stat_metadata else value


def stat_ids(plane: XPlane, *names: str) -> dict[str, int]:
    return {meta.name: key for key, meta in plane.stat_metadata.items() if meta.name in names}


def core_planes(space: XSpace) -> list[XPlane]:
    """Planes of accelerator cores (TPU TensorCores, GPUs) on which anything happened."""
    return [plane for plane in space.planes if CORE_PLANE.match(plane.name) and any(p.events for p in plane.lines)]


def device_memory(space: XSpace) -> float | None:
    """Bytes of one GPU's memory as its plane states them, the least where they differ."""
    sizes: list[int] = []
    for plane in core_planes(space):
        wanted = stat_ids(plane, "memory_size").get("memory_size")
        values = (stat_value(plane, stat) for stat in plane.stats if stat.metadata_id == wanted)
        sizes += [size for value in values if (size := whole_number(str(value))) is not None]
    return float(min(sizes)) if sizes and min(sizes) > 0 else None


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

    def of_kinds(self, kinds: Sequence[int]) -> Events:
        """The events of these metadata ids."""
        mask = np.isin(self.kind, np.array(kinds, np.int64))
        return Events(self.kind[mask], self.starts[mask], self.ends[mask])

    def cover(self, mask: np.ndarray) -> IntervalUnion:
        return IntervalUnion.of(self.starts[mask], self.ends[mask])


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
    table = table[((table[:, 1:] >= 0) & (table[:, 1:] < MAX_PS)).all(axis=1)]
    table[:, 1] += shift_ns * 1000
    return table


#: Lines of a GPU that XProf derives from its streams: their events would count twice.
_DERIVED = (
    "Steps", "XLA Modules", "XLA Ops", "Async XLA Ops", "XLA TraceMe", "TensorFlow Name Scope", "TensorFlow Ops",
    "Framework Name Scope", "Framework Ops", "Source code", "Source Code", "Launch Stats", "Overlay",
)  # fmt: skip


def in_range(event: XEvent) -> bool:
    """Whether an event's times can be those of a profile."""
    return 0 <= event.offset_ps < MAX_PS and 0 <= event.duration_ps < MAX_PS


def base_ns(lines: Iterable[XLine]) -> int:
    return min((line.timestamp_ns for line in lines if line.events), default=0)


def op_lines(plane: XPlane) -> list[XLine]:
    """The lines whose events are ops: one on a TPU, one per stream on a GPU, whatever its tracer calls them."""
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    ops = streams or [line for line in plane.lines if line.name == "XLA Ops"]
    if ops or ":GPU:" not in plane.name:
        return ops
    return [line for line in plane.lines if line.name not in _DERIVED]


def step_line(plane: XPlane) -> XLine | None:
    return next((line for line in plane.lines if line.name == "Steps" and line.events), None)
