"""Peak device memory from the allocator's own events on the host."""

from __future__ import annotations

from experiments.ingest.planes import stat_value
from experiments.step_profile import Memory
from experiments.xplane import XSpace

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
