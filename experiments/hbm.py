"""HBM over a program and over time, as the page draws it: areas in SVG paths, buffers by module and by kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import formatting
from experiments.memory_profile import AllocatorCurve, Buffer, HeapSchedule
from experiments.step_profile import Memory

WIDTH, HEIGHT = 1000, 220
KINDS = {
    "parameter": ("Parameters and optimizer state", "mem-1"),
    "output": ("Outputs", "mem-2"),
    "constant": ("Constants", "mem-3"),
    "temporary": ("Temporaries", "mem-4"),
}
#: Modules of the list; the rest is summed.
MOST_MODULES = 14
_INDEX = re.compile(r"\[[^\[\]]*\]")
_KEY = re.compile(r"\[['\"]([^'\"]+)['\"]\]|\.(\w+)")
_WRAPPER = re.compile(r"^(jit|pjit|jvp|transpose|vmap|checkpoint|remat\d*|rematted_computation|while|body|cond)\b")
_LEAF = re.compile(r"^(kernel|bias|scale|embedding|w\d?|weight)$")


@dataclass(frozen=True)
class Area:
    """A drawn curve.  path, line: in a box of WIDTH × HEIGHT; peak: (x, y) in percent of it; most: bytes at the top."""

    path: str
    line: str
    peak_x: float
    most: float
    capacity_y: float | None
    base: str = ""


@dataclass(frozen=True)
class Group:
    """Buffers of one module, or of one kind, at the peak."""

    name: str
    size_bytes: float
    share: float
    count: int
    css: str = "mem-4"
    kinds: str = ""


def heap_area(schedule: HeapSchedule) -> Area:
    """The heap over the schedule."""
    most = max(schedule.heap_bytes) * 1.06 or 1.0
    last = max(schedule.steps - 1, 1)
    points = [(place / last, value) for place, value in zip(schedule.positions, schedule.heap_bytes, strict=True)]
    return _area(points, most, schedule.peak_position / last, None)


def allocator_area(curve: AllocatorCurve) -> Area:
    """Allocated and reserved bytes over time; the base is what is reserved for programs."""
    first, span = curve.times_s[0], (curve.times_s[-1] - curve.times_s[0]) or 1.0
    total = [heap + reserved for heap, reserved in zip(curve.heap_bytes, curve.reserved_bytes, strict=True)]
    most = max([*total, curve.capacity_bytes or 0.0]) * 1.02 or 1.0
    at = [(time - first) / span for time in curve.times_s]
    peak = at[max(range(len(total)), key=lambda place: total[place])]
    drawn = _area(list(zip(at, total, strict=True)), most, peak, curve.capacity_bytes)
    base = _area(list(zip(at, curve.reserved_bytes, strict=True)), most, peak, None)
    return Area(drawn.path, drawn.line, drawn.peak_x, drawn.most, drawn.capacity_y, base.path)


def _area(points: Sequence[tuple[float, float]], most: float, peak: float, capacity: float | None) -> Area:
    """A stepped area: a value holds until the next."""
    pieces, before = [], None
    for x, value in points:
        px, py = x * WIDTH, HEIGHT * (1 - value / most)
        pieces.append(f"M{px:.1f} {py:.1f}" if before is None else f"H{px:.1f}V{py:.1f}")
        before = py
    line = "".join(pieces) + f"H{WIDTH}"
    first = points[0][0] * WIDTH
    level = HEIGHT * (1 - capacity / most) if capacity else None
    return Area(f"{line}V{HEIGHT}H{first:.1f}Z", line, peak * WIDTH, most, level)


def by_kind(schedule: HeapSchedule) -> list[Group]:
    """Buffers at the peak by what they are for."""
    return [
        Group(words, sum(b.size_bytes for b in buffers), sum(b.size_bytes for b in buffers) / schedule.peak_bytes,
              len(buffers), css)
        for kind, (words, css) in KINDS.items()
        if (buffers := [buffer for buffer in schedule.buffers if buffer.kind == kind])
    ]  # fmt: skip


def by_module(schedule: HeapSchedule) -> list[Group]:
    """Buffers at the peak by module, the largest first."""
    buffers: dict[str, list[Buffer]] = {}
    for buffer in schedule.buffers:
        buffers.setdefault(module_of(buffer), []).append(buffer)
    groups = [
        Group(name, sum(b.size_bytes for b in rows), sum(b.size_bytes for b in rows) / schedule.peak_bytes, len(rows),
              kinds=", ".join(sorted({b.kind for b in rows})))
        for name, rows in buffers.items()
    ]  # fmt: skip
    groups.sort(key=lambda group: -group.size_bytes)
    if len(groups) > MOST_MODULES:
        rest = groups[MOST_MODULES:]
        size = sum(group.size_bytes for group in rest)
        count = sum(group.count for group in rest)
        groups = [*groups[:MOST_MODULES], Group("other modules", size, size / schedule.peak_bytes, count)]
    return groups


def module_of(buffer: Buffer) -> str:
    """`state.opt_state.mu decoder/layers/mlp` of a parameter's path, the name stack of a temporary without its wrappers
    and its primitive, else the opcode."""
    path = buffer.path
    if "[" in path or path.startswith("state."):
        names = [a or b for a, b in _KEY.findall(path)]
        while len(names) > 1 and _LEAF.match(names[-1]):
            names.pop()
        head = [name for name in names if name in ("mu", "nu", "opt_state", "step", "count")]
        rest = [name for name in names if name not in ("mu", "nu", "opt_state", "params", "count", "step")]
        what = {"mu": "first moment of ", "nu": "second moment of "}.get(head[-1] if head else "", "")
        return what + ("/".join(rest) or "/".join(names) or path)
    scopes = [part for part in _INDEX.sub("", path).split("/") if part and not _WRAPPER.match(part)]
    return "/".join(scopes[:-1][:4]) or "/".join(scopes) or buffer.opcode or "unattributed"


def statement(memory: Memory) -> str:
    """What sets the peak, in a sentence; empty where nothing says."""
    schedule = memory.schedule
    if schedule is None or not schedule.buffers:
        return ""
    parts = sorted(by_kind(schedule), key=lambda group: -group.size_bytes)
    return f"{parts[0].name} take {formatting.share(parts[0].share, 2)} of the peak of {schedule.program}."
