"""One PyTorch trace → `TraceFile`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.formats import HEAD_BYTES, WHAT_IS_ACCEPTED, named_format
from experiments.ingest.gpu.assemble import LOST_DEVICE, add_host_work, device_traces, recorded
from experiments.ingest.gpu.device import CPU, TraceFile
from experiments.ingest.gpu.marks import host_steps
from experiments.ingest.kineto.collect import KinetoEvents
from experiments.ingest.kineto.comms import groups_of
from experiments.ingest.kineto.stream import NotStrict, events, header
from experiments.ingest.values import text

WHY_NO_STEPS = (
    "The trace has no step markers. Call prof.step() after each step (torch.profiler.profile with a schedule) and "
    "record again."
)
NO_DEVICE = "The trace contains no GPU activity. Record with ProfilerActivity.CUDA among the activities."
_RANK = re.compile(r"rank[-_ ]?(\d{1,6})", re.I)
_NAMELESS_AMD = {(9, 0): "AMD GPU - gfx90a", (9, 4): "AMD GPU - gfx942", (9, 5): "AMD GPU - gfx950"}


def read(path: Path, name: str) -> TraceFile:
    """Everything a trace holds.  Raises IngestError where it is cut off, or no trace of the PyTorch profiler."""
    head = header(path)
    groups = groups_of(head.get("distributedInfo"))
    collected, damage = KinetoEvents(), None
    try:
        collected.add(events(path, name), groups)
    except NotStrict:
        collected = KinetoEvents()
        try:
            collected.add(events(path, name, cleaned=True), groups)
        except IngestError as error:
            damage = error
    if not collected.events:
        with path.open("rb") as source:
            if other := named_format(name, source.read(HEAD_BYTES)):
                raise IngestError(*other, name)
    if damage:
        raise damage
    if not collected.events:
        if collected.foreign:
            what = f"{name} is a trace of another tool: its events ({collected.foreign}) are no ops, kernels or steps."
            raise IngestError(what, WHAT_IS_ACCEPTED, name)
        raise IngestError(
            f"{name} is a trace with no op, kernel or step of the PyTorch profiler.",
            "Run steps while the profiler is active, more than its schedule waits and warms up, and upload what "
            "prof.export_chrome_trace or tensorboard_trace_handler wrote, or XProf's *.xplane.pb file.",
            name,
            kind="empty",
        )
    return _recording(collected, head, name)


def _recording(collected: KinetoEvents, head: dict[str, Any], name: str) -> TraceFile:
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank, world = distributed.get("rank"), distributed.get("world_size")
    rank = rank if isinstance(rank, int) and rank >= 0 else collected.rank
    if rank is None and (match := _RANK.search(name.replace("\\", "/").rpartition("/")[2])):
        rank = int(match.group(1))
    listed = head.get("deviceProperties")
    properties = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    host, steps = text(head.get("host_name"), 100).strip(), host_steps(collected)
    by_id = {item.get("id"): item for item in properties}
    # Where the id is none of the list, its parts are still told if all are the same.
    alike = properties[0] if len({_device_name(item) for item in properties}) == 1 else {}
    holds = recorded(collected)
    on_host = add_host_work(collected)

    def describe(device: int) -> dict[str, Any]:
        facts = by_id.get(device, alike)
        capacity = facts.get("totalGlobalMem")
        own = collected.ranks.get(device, rank) if len(collected.ranks) > 1 else rank
        return {
            "name": "CPU" if on_host else f"GPU {device}" if device >= 0 else "GPU",
            "host": f"rank {own}" if own is not None else host,
            "device_name": CPU if on_host else _device_name(facts),
            "rank": own,
            "steps": steps,
            "memory_capacity_bytes": float(capacity) if isinstance(capacity, int) and capacity > 0 else None,
        }

    devices = device_traces(collected, describe)
    why = LOST_DEVICE if "launches" in holds.has else NO_DEVICE
    return TraceFile(
        file=name,
        devices=tuple(devices),
        rank=rank,
        world_size=world if isinstance(world, int) and world > 0 else None,
        host_name=host,
        recorder="PyTorch profiler",
        device_names=tuple(filter(None, map(_device_name, properties))),
        why_no_device="" if devices and not on_host else why,
        recorded=holds,
        steps=steps,
        span_ns=collected.span_ns(head.get("baseTimeNanoseconds")),
    )


def _device_name(properties: dict[str, Any]) -> str:
    """The driver's name; of a nameless AMD part its architecture, as XProf would say it."""
    named = text(properties.get("name"), 100).strip()
    if named or properties.get("warpSize") != 64:
        return named
    return _NAMELESS_AMD.get((properties.get("computeMajor", 0), properties.get("computeMinor", 0)), "AMD GPU")
