"""CPU recordings: ops that ran on host threads, regrouped into one plane per device.

XLA on CPU has no device planes; each op is an event of a thread pool, with `hlo_op`, `hlo_module` and `device_ordinal`.
Laid out as XProf expects of a GPU (one stream per thread), XProf names, categorises and prices them from the HLO in the
same file.
"""

from __future__ import annotations

import numpy as np

from experiments.ingest.marks import Annotations
from experiments.ingest.op_classes import CONTROL, op_class
from experiments.ingest.planes import MAX_NS, Events, in_range
from experiments.ingest.timeline import CoreTimeline, measure
from experiments.xplane import XEvent, XLine, XPlane, XSpace


def regroup(space: XSpace, host: str) -> tuple[XSpace, tuple[CoreTimeline, ...]]:
    """(HLO and a `/device:GPU:<n>` plane per CPU device from the op events of host threads, for the converter; their
    timelines).

    Loops and calls are left out: their ops are events of their own, often on other threads, and would count twice.
    """
    result = XSpace(hostnames=[host])
    cores: list[CoreTimeline] = []
    annotations = Annotations(space)
    for plane in space.planes:
        if plane.name in ("/host:metadata", "Task Environment"):
            result.planes.add().CopyFrom(plane)
        elif plane.name.startswith("/host:"):
            cores += _regroup_plane(annotations, plane, result, host)
    return result, tuple(cores)


def _regroup_plane(annotations: Annotations, plane: XPlane, result: XSpace, host: str) -> list[CoreTimeline]:
    kinds = {key: (meta.name, op_class(meta.name, "")) for key, meta in plane.event_metadata.items()}
    by_device = _by_device(plane, kinds)
    if not by_device:
        return []
    zero_ns = min(line.timestamp_ns for lines in by_device.values() for line, _ in lines)
    table = {device: _events(by_device[device], zero_ns) for device in sorted(by_device)}
    last_end = max(int(events.ends.max()) for events in table.values())
    steps = annotations.steps(zero_ns, last_end)
    for device in table:
        _write_plane(result, plane, device, by_device[device])
    measured = (measure(f"CPU:{device}", host, events, kinds, steps) for device, events in table.items())
    return [core for core in measured if core is not None]


def _by_device(plane: XPlane, kinds: dict[int, tuple[str, str]]) -> dict[int, list[tuple[XLine, list[XEvent]]]]:
    """Op events by device and thread."""
    ids = {meta.name: key for key, meta in plane.stat_metadata.items()}
    ordinal_id, op_id = ids.get("device_ordinal"), ids.get("hlo_op")
    by_device: dict[int, list[tuple[XLine, list[XEvent]]]] = {}
    if ordinal_id is None or op_id is None:
        return by_device
    ops = {key for key, (_, kind) in kinds.items() if kind != CONTROL}
    first_ns = min((line.timestamp_ns for line in plane.lines), default=0)
    for line in plane.lines:
        if line.timestamp_ns - first_ns >= MAX_NS:
            continue
        on_line: dict[int, list[XEvent]] = {}
        for event in line.events:
            if event.metadata_id not in ops:
                continue
            device, has_op = None, False
            for stat in event.stats:
                if stat.metadata_id == ordinal_id:
                    device = stat.int64_value or stat.uint64_value
                elif stat.metadata_id == op_id:
                    has_op = True
            if device is not None and has_op and in_range(event):
                on_line.setdefault(int(device), []).append(event)
        for device, events in on_line.items():
            by_device.setdefault(device, []).append((line, events))
    return by_device


def _events(lines: list[tuple[XLine, list[XEvent]]], zero_ns: int) -> Events:
    rows = [
        (event.metadata_id, event.offset_ps + (line.timestamp_ns - zero_ns) * 1000, event.duration_ps)
        for line, events in lines
        for event in events
    ]
    array = np.array(rows, np.int64).reshape(-1, 3)
    return Events(array[:, 0], array[:, 1], array[:, 1] + array[:, 2])


def _write_plane(result: XSpace, source: XPlane, device: int, lines: list[tuple[XLine, list[XEvent]]]) -> None:
    plane = result.planes.add(id=1000 + device, name=f"/device:GPU:{device}")
    for key, meta in source.stat_metadata.items():
        plane.stat_metadata[key].CopyFrom(meta)
    for number, (line, events) in enumerate(lines, 1):
        copy = plane.lines.add(id=number, name=f"Stream #{number}(Compute)", timestamp_ns=line.timestamp_ns)
        copy.events.extend(events)
        for key in {event.metadata_id for event in events}:
            plane.event_metadata[key].CopyFrom(source.event_metadata[key])
