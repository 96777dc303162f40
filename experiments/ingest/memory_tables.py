"""Peak device memory by the allocator's events, and XProf's tables: `memory_viewer` (a program's heap by schedule),
`memory_profile` (the allocator's events)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.ingest.planes import stat_value
from experiments.ingest.values import number, text
from experiments.memory_profile import (
    CONSTANT,
    MOST_BUFFERS,
    MOST_POINTS,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    AllocatorCurve,
    Buffer,
    HeapSchedule,
)
from experiments.step_profile import Memory
from experiments.xplane import XSpace

MIB = 1 << 20
_KINDS = {"parameter": PARAMETER, "output": OUTPUT, "constant": CONSTANT}


def heap_schedule(data: Any) -> HeapSchedule | None:
    """The heap of `memory_viewer`; None where the table holds none.  Its sizes are MiB."""
    sizes = _numbers(data.get("heapSizes")) if isinstance(data, Mapping) else []
    if not sizes:
        return None
    names = [text(name, 200) for name in data.get("hloInstructionNames") or []]
    at = int(number(data.get("peakHeapSizePosition")) or 0)
    # XProf's position may be the instruction before the one that reaches the peak.
    peak = at if 0 <= at < len(sizes) and sizes[at] == max(sizes) else int(np.argmax(sizes))
    positions = thin(sizes, peak)
    rows = [row for row in data.get("maxHeapBySize") or data.get("maxHeap") or [] if isinstance(row, Mapping)]
    buffers = sorted((_buffer(row) for row in rows), key=lambda buffer: -buffer.size_bytes)
    stated = number(data.get("peakHeapMib"))
    return HeapSchedule(
        program=text(data.get("moduleName"), 200),
        steps=len(sizes),
        positions=tuple(positions),
        heap_bytes=tuple(sizes[place] * MIB for place in positions),
        instructions=tuple(names[place] if place < len(names) else "" for place in positions),
        peak_position=peak,
        peak_bytes=(stated if stated is not None else sizes[peak]) * MIB,
        buffers=tuple(buffers[:MOST_BUFFERS]),
        others=max(len(buffers) - MOST_BUFFERS, 0),
        others_bytes=sum(buffer.size_bytes for buffer in buffers[MOST_BUFFERS:]),
    )


def _buffer(row: Mapping[str, Any]) -> Buffer:
    opcode, group = text(row.get("opCode"), 60), text(row.get("groupName"), 60).lower()
    unpadded = number(row.get("unpaddedShapeMib"))
    source = row.get("sourceInfo")
    kind = next((kind for word, kind in _KINDS.items() if group.startswith(word) or opcode == word), TEMPORARY)
    line = ""
    if isinstance(source, Mapping) and source.get("fileName"):
        line = f"{text(source['fileName'], 300)}:{source.get('lineNumber')}"
    return Buffer(
        name=text(row.get("instructionName"), 200),
        kind=kind,
        size_bytes=(number(row.get("logicalBufferSizeMib")) or 0.0) * MIB,
        unpadded_bytes=unpadded * MIB if unpadded is not None else None,
        shape=text(row.get("shapeString"), 200),
        opcode=opcode,
        path=text(row.get("tfOpName"), 400),
        source=line,
    )


def allocator_curve(allocators: Mapping[str, Any]) -> AllocatorCurve | None:
    """The device allocator that came closest to its capacity, of `memoryProfilePerAllocator`; None where no device has
    an event."""
    curves = [curve for name, data in allocators.items() if (curve := _curve(text(name, 60), data)) is not None]
    # XProf writes allocators in any order: of equals the one by its name.
    ranked = sorted(
        curves, key=lambda curve: (-curve.peak_bytes / (curve.capacity_bytes or 1e18), -curve.events, curve.allocator)
    )
    return next(iter(ranked), None)


def _curve(name: str, data: Any) -> AllocatorCurve | None:
    if name.lower().startswith(HOST_ALLOCATORS) or not isinstance(data, Mapping):
        return None
    rows = data.get("sampledTimelineSnapshots") or data.get("memoryProfileSnapshots") or []
    points: list[tuple[float, float, float]] = []
    for row in rows:
        stats = row.get("aggregationStats") if isinstance(row, Mapping) else None
        time = number(row.get("timeOffsetPs")) if isinstance(row, Mapping) else None
        if isinstance(stats, Mapping) and time is not None:
            heap, reserved = number(stats.get("heapAllocatedBytes")), number(stats.get("stackReservedBytes"))
            points.append((time * 1e-12, heap or 0.0, reserved or 0.0))
    if not points:
        return None
    points.sort()
    total = [heap + reserved for _, heap, reserved in points]
    kept = thin(total, int(np.argmax(total)))
    summary = data.get("profileSummary")
    summary = summary if isinstance(summary, Mapping) else {}
    stats = summary.get("peakStats")
    stated = number(stats.get("peakBytesInUse")) if isinstance(stats, Mapping) else None
    at = number(summary.get("peakStatsTimePs"))
    return AllocatorCurve(
        allocator=name,
        times_s=tuple(points[place][0] for place in kept),
        heap_bytes=tuple(points[place][1] for place in kept),
        reserved_bytes=tuple(points[place][2] for place in kept),
        peak_bytes=max(stated or 0.0, max(total)),
        peak_s=at * 1e-12 if at else None,
        capacity_bytes=number(summary.get("memoryCapacity")) or None,
        events=len(points),
    )


def thin(values: Sequence[float], peak: int) -> list[int]:
    """At most MOST_POINTS places in order, with the largest value of each stretch, and the peak among them."""
    count = len(values)
    if count <= MOST_POINTS:
        return list(range(count))
    edges = np.linspace(0, count, MOST_POINTS).astype(int)
    column = np.asarray(values)
    places = {int(first) + int(column[first:last].argmax()) for first, last in itertools.pairwise(edges)}
    if peak not in places:  # two stretches may hold the same largest value
        places.discard(min(places, key=lambda place: abs(place - peak)))
        places.add(peak)
    return sorted(places)


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        return []
    read = [number(value) for value in values]
    return [value if value is not None else 0.0 for value in read]


_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
#: Beginnings of the names of allocators that hold no memory of a device.
HOST_ALLOCATORS = ("cpu", "host", "pinned", "mkl")


def peak_memory(space: XSpace) -> Memory:
    """Peak and capacity, in bytes, of the device allocator that came closest to its capacity.

    In use is what it had reserved (stack) and allocated (heap), at the peak or since it started, whichever is more;
    capacity is that and what is free, as XProf counts them.  None where no allocator event
    was recorded.
    """
    peaks: dict[str, int] = {}
    capacities: dict[str, int] = {}
    for plane in space.planes:
        if not plane.name.startswith("/host:"):
            continue
        kinds = {key for key, meta in plane.event_metadata.items() if meta.name in _EVENTS}
        if not kinds:
            continue
        names = {key: meta.name for key, meta in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id not in kinds:
                    continue
                stats = {names.get(stat.metadata_id, ""): stat_value(plane, stat) for stat in event.stats}
                stats |= {
                    names.get(stat.metadata_id, ""): stat_value(plane, stat)
                    for stat in plane.event_metadata[event.metadata_id].stats
                }
                allocator = str(stats.get("allocator_name", ""))
                if allocator.lower().startswith(HOST_ALLOCATORS):
                    continue
                sizes = [stats.get(key) for key in ("bytes_reserved", "bytes_allocated", "bytes_available")]
                capacity = sum(size for size in sizes if isinstance(size, int) and size > 0)
                lifetime = stats.get("peak_bytes_in_use")
                in_use = sum(size for size in sizes[:2] if isinstance(size, int) and size > 0)
                peak = max(in_use, lifetime if isinstance(lifetime, int) else 0)
                if 0 < peak < 1 << 60:
                    peaks[allocator] = max(peaks.get(allocator, 0), peak)
                capacities[allocator] = max(capacities.get(allocator, 0), capacity)
    return worst([Memory(float(peak), float(capacities[name]) or None) for name, peak in peaks.items()])


def worst(memories: list[Memory]) -> Memory:
    """The one that used most of its capacity (or most, where no capacity is known)."""
    known = [memory for memory in memories if memory.peak_bytes is not None]
    if not known:
        return Memory()

    def use(memory: Memory) -> tuple[float, float]:
        peak = memory.peak_bytes or 0.0
        return (peak / memory.capacity_bytes if memory.capacity_bytes else 0.0, peak)

    return max(known, key=use)
