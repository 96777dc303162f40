"""XSpaces of GPUs as CUPTI and ROCm record them: kernels on streams, ops in each event's stats, no step line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.xplane import XSpace
from tests.ingest.xspaces import PlaneWriter


@dataclass(frozen=True)
class Kernel:
    """One kernel of every execution: when it runs (µs from the execution's start), and what its event says."""

    name: str
    start_us: float
    duration_us: float
    tf_op: str = ""
    hlo_op: str = ""
    module: str = "jit_step"
    program: int = 7
    details: str = ""
    graph: int = 0
    stream: str = "Stream #7(Compute)"


def gpu_xspace(
    kernels: Sequence[Kernel],
    *,
    host: str = "host-0",
    devices: Iterable[int] = (0,),
    empty: Iterable[int] = (),
    runs: int = 3,
    period_us: float = 1000.0,
    host_events: Sequence[str] = (),
    memory_bytes: int = 85_899_345_920,
) -> XSpace:
    """`runs` executions, each period_us after the one before.

    empty: devices without any event.  host_events: names of events on the host's threads.
    """
    space = XSpace(hostnames=[host])
    silent = set(empty)
    for device in sorted({*devices, *silent}):
        writer = PlaneWriter(space.planes.add())
        writer.plane.id, writer.plane.name = device + 10, f"/device:GPU:{device}"
        for name, value in (
            ("device_vendor", "Nvidia"), ("clock_rate", 1_980_000), ("core_count", 132), ("compute_cap_major", 9),
            ("compute_cap_minor", 0), ("memory_bandwidth", 3_352_000_000_000), ("memory_size", memory_bytes),
        ):  # fmt: skip
            writer.set_stat(writer.plane.stats, name, value)
        for run in range(0 if device in silent else runs):
            for kernel in kernels:
                event = writer.event(
                    kernel.stream, writer.event_id(kernel.name), run * period_us + kernel.start_us, kernel.duration_us
                )
                said = {"tf_op": kernel.tf_op, "hlo_op": kernel.hlo_op, "memcpy_details": kernel.details}
                if kernel.hlo_op:
                    said |= {"hlo_module": kernel.module}
                    writer.set_stat(event.stats, "program_id", kernel.program)  # type: ignore[attr-defined]
                if kernel.graph:
                    writer.set_stat(event.stats, "cuda_graph_id", kernel.graph)  # type: ignore[attr-defined]
                for stat, text in said.items():
                    if text:
                        writer.set_stat(event.stats, stat, text)  # type: ignore[attr-defined]
    if host_events:
        writer = PlaneWriter(space.planes.add())
        writer.plane.id, writer.plane.name = 900, "/host:CPU"
        for number, name in enumerate(host_events):
            writer.event("python", writer.event_id(name), number * 10, 5)
    return space
