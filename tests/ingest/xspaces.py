"""Tiny XSpaces, made by hand, whose numbers the tests derive on paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from experiments.xplane import XLine, XPlane, XSpace, XStat

PS_PER_US = 1_000_000

#: Peaks written into the generated planes, per core.
PEAK_TFLOPS = 100.0
PEAK_HBM_GB = 1000.0


@dataclass(frozen=True)
class OpSpec:
    """One op of every step: name, category, and when it runs in the step (µs)."""

    name: str
    category: str
    start_us: float
    duration_us: float
    flops: int = 0
    bytes_accessed: int = 0
    hlo: str = ""
    op_name: str = ""
    line: str = "XLA Ops"


@dataclass
class PlaneWriter:
    """An XPlane with its tables of names."""

    plane: XPlane
    stats: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)

    def stat_id(self, name: str) -> int:
        if name not in self.stats:
            self.stats[name] = len(self.stats) + 1
            self.plane.stat_metadata[self.stats[name]].id = self.stats[name]
            self.plane.stat_metadata[self.stats[name]].name = name
        return self.stats[name]

    def set_stat(self, stats: object, name: str, value: object) -> None:
        stat: XStat = stats.add()  # type: ignore[attr-defined]
        stat.metadata_id = self.stat_id(name)
        match value:
            case float():
                stat.double_value = value
            case int():
                stat.uint64_value = value
            case bytes():
                stat.bytes_value = value
            case _:
                stat.str_value = str(value)

    def event_id(self, name: str, display_name: str = "", **stats: object) -> int:
        key = f"{name}\0{display_name}"
        if key not in self.events:
            number = self.events[key] = len(self.events) + 1
            meta = self.plane.event_metadata[number]
            meta.id, meta.name, meta.display_name = number, name, display_name
            for stat, value in stats.items():
                self.set_stat(meta.stats, stat, value)
        return self.events[key]

    def line(self, name: str) -> XLine:
        for line in self.plane.lines:
            if line.name == name:
                return line
        line = self.plane.lines.add()
        line.id, line.name, line.timestamp_ns = len(self.plane.lines), name, 1000
        return line

    def event(self, line: str, metadata_id: int, start_us: float, duration_us: float) -> object:
        event = self.line(line).events.add()
        event.metadata_id = metadata_id
        event.offset_ps = round(start_us * PS_PER_US)
        event.duration_ps = round(duration_us * PS_PER_US)
        return event


def hbm_breakdown(num_bytes: int) -> bytes:
    """A serialised MemoryAccessBreakdown: one read of num_bytes from memory space 1 (HBM)."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    entry = b"\x08\x01\x10\x01\x18" + varint(num_bytes)
    return b"\x0a" + varint(len(entry)) + entry


def tpu_xspace(
    ops: Sequence[OpSpec],
    *,
    host: str = "host-0",
    cores: Iterable[int] = (0,),
    steps: int = 2,
    step_us: float = 100.0,
    device_type: str = "TPU v5p",
    slow_core: int | None = None,
) -> XSpace:
    """A TPU profile: `steps` back-to-back steps of the same ops on every core.

    slow_core: a core on which everything takes twice as long.
    """
    space = XSpace(hostnames=[host])
    for core in cores:
        factor = 2.0 if core == slow_core else 1.0
        writer = PlaneWriter(space.planes.add())
        writer.plane.id, writer.plane.name = core + 10, f"/device:TPU:{core}"
        writer.set_stat(writer.plane.stats, "peak_teraflops_per_second", PEAK_TFLOPS)
        writer.set_stat(writer.plane.stats, "peak_hbm_bw_gigabytes_per_second", PEAK_HBM_GB)
        writer.set_stat(writer.plane.stats, "device_type_string", device_type)
        for name in ("Steps", "XLA Modules", "XLA Ops"):
            writer.line(name)
        module = writer.event_id("jit_step(7)")
        for step in range(steps):
            begin = step * step_us * factor
            writer.event("Steps", writer.event_id(str(step + 1)), begin, step_us * factor)
            writer.event("XLA Modules", module, begin, step_us * factor)
            for number, op in enumerate(ops):
                metadata_id = writer.event_id(
                    op.hlo or f"%{op.name} = f32[8]{{0}} {op.category}(f32[8]{{0}} %p)",
                    op.name,
                    program_id=7,
                    symbol_id=number + 1,
                    hlo_category=op.category,
                    tf_op=op.op_name or f"jit(step)/{op.name}",
                    flops=op.flops,
                    model_flops=op.flops,
                    bytes_accessed=op.bytes_accessed,
                    memory_access_breakdown=hbm_breakdown(op.bytes_accessed),
                    source="train.py:12",
                )
                writer.event(op.line, metadata_id, begin + op.start_us * factor, op.duration_us * factor)
    return space
