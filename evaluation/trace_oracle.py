"""What a PyTorch trace or an Nsight Systems export says of itself, computed apart from the product's reader.

Plain Python over the whole JSON document or SQLite tables, interval by interval, with definitions as
HolisticTraceAnalysis and TraceLens publish them: busy is the union of kernels, copies and fills; communication that
of kernels with `nccl` or `rccl` in their name, or launched by a collective; exposed what of it no other kernel, fill or
copy on the device covers.  Steps are the host's marks, begun on the device when the host begins them or when what was
launched before has ended.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

Interval = tuple[float, float]

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Said:
    """Of one device.  Shares 0–1 of the steps, or of first to last activity where no step is marked.

    host_step_s: mean length of the host's marks; step_s: mean length on the device, None without marks.
    kernels: the five with the longest total time, (name, share).
    """

    device: int
    steps: int
    host_step_s: float | None
    step_s: float | None
    busy: float
    communication: float
    exposed: float
    kernels: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class _Activity:
    start: float
    end: float
    name: str
    is_copy_with_host: bool
    launched: float | None

    @property
    def talks(self) -> bool:
        lower = self.name.lower()
        return any(word in lower for word in ("nccl", "rccl", "all_reduce_kernel", "cross_device_reduce"))


def of_traces(paths: Sequence[Path]) -> dict[str, float]:
    """Quantities of `evaluation.real_profiles` for PyTorch traces; the step time is that of the host's own marks."""
    quantities = _quantities([said for path in paths for said in kineto(path)])
    peaks = [peak for path in paths if (peak := _peak_memory(path))]
    return quantities | ({"peak_memory": max(peaks)} if peaks else {})


def of_nsight(paths: Sequence[Path]) -> dict[str, float]:
    """The same for Nsight Systems exports."""
    return _quantities([said for path in paths for said in nsight(path)])


def _quantities(devices: Sequence[Said]) -> dict[str, float]:
    if not devices:
        return {}
    busy = fmean(device.busy for device in devices)
    quantities = {"duty_cycle": busy, "idle": 1.0 - busy, "communication": fmean(d.communication for d in devices)}
    marked = [device.host_step_s for device in devices if device.host_step_s is not None and device.steps]
    return quantities | ({"step_time": fmean(marked)} if marked else {})


def _peak_memory(path: Path) -> float:
    events = _events(path)
    return max(
        (
            event["args"].get("Total Allocated", 0)
            for event in events
            if event.get("name") == "[memory]" and event["args"].get("Device Type")
        ),
        default=0,
    )


def _events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    document = json.loads((gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace"))
    return document["traceEvents"] if isinstance(document, dict) else document


def kineto(path: Path) -> list[Said]:
    """Every device of a trace, by id."""
    spans = [event for event in _events(path) if event.get("ph") == "X" and "dur" in event]
    calls: dict[Any, float] = {}
    for event in spans:
        if event.get("cat") in _RUNTIME and "correlation" in event.get("args", {}):
            key = event["args"]["correlation"]
            calls[key] = min(calls.get(key, float("inf")), event["ts"])
    devices: dict[int, list[_Activity]] = defaultdict(list)
    for event in spans:
        if event.get("cat") in _DEVICE:
            args = event.get("args", {})
            with_host = event["cat"] == "gpu_memcpy" and ("HtoD" in event["name"] or "DtoH" in event["name"])
            with_host = with_host or any(word in event["name"] for word in ("HostToDevice", "DeviceToHost"))
            launched = calls.get(args.get("correlation"))
            if launched is not None and launched > event["ts"]:
                launched = None
            devices[args.get("device", event["pid"])].append(
                _Activity(event["ts"], event["ts"] + event["dur"], event["name"], with_host, launched)
            )
    marks = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in spans
        if str(event.get("name")).startswith("ProfilerStep") and event.get("cat") in ("user_annotation", "cpu_op")
    }
    return [_device(device, kernels, sorted(marks.values()), 1e-6) for device, kernels in sorted(devices.items())]


def nsight(path: Path) -> list[Said]:
    """Every device of an export, by id; ranges named `iteration N` or `step N` are its steps."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    devices: dict[int, list[_Activity]] = defaultdict(list)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    query = (
        "SELECT k.start, k.end, k.deviceId, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = "
        "k.demangledName"
    )
    for start, end, device, name in connection.execute(query):
        devices[device].append(_Activity(start, end, name, False, None))
    if "CUPTI_ACTIVITY_KIND_MEMCPY" in tables:
        for start, end, device, kind in connection.execute(
            "SELECT start, end, deviceId, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"
        ):
            devices[device].append(_Activity(start, end, "Memcpy", kind in (1, 2), None))
    if "CUPTI_ACTIVITY_KIND_MEMSET" in tables:
        for start, end, device in connection.execute("SELECT start, end, deviceId FROM CUPTI_ACTIVITY_KIND_MEMSET"):
            devices[device].append(_Activity(start, end, "Memset", False, None))
    connection.close()
    return [_device(device, kernels, [], 1e-9) for device, kernels in sorted(devices.items())]


def _device(device: int, kernels: list[_Activity], marks: list[Interval], unit_s: float) -> Said:
    steps = [] if not marks else _steps(kernels, marks)
    windows = steps or [(min(item.start for item in kernels), max(item.end for item in kernels))]
    total = sum(end - start for start, end in windows)
    busy = _length(_inside([(item.start, item.end) for item in kernels], windows))
    talk = _inside([(item.start, item.end) for item in kernels if item.talks], windows)
    work = _inside([(i.start, i.end) for i in kernels if not i.talks and not i.is_copy_with_host], windows)
    exposed = _length(talk + work) - _length(work)
    times: dict[str, float] = defaultdict(float)
    for item in kernels:
        if _inside([(item.start, item.end)], windows):
            times[item.name] += item.end - item.start
    largest = sorted(times.items(), key=lambda pair: -pair[1])[:5]
    return Said(
        device,
        len(steps),
        fmean(end - start for start, end in marks) * unit_s if marks else None,
        total * unit_s / len(steps) if steps else None,
        busy / total,
        _length(talk) / total,
        exposed / total,
        tuple((name, time / total) for name, time in largest),
    )


def _steps(kernels: list[_Activity], marks: list[Interval]) -> list[Interval]:
    known = [item for item in kernels if item.launched is not None]
    first = min((item.start for item in known), default=None)

    def launched(item: _Activity) -> float:
        if item.launched is not None:
            return item.launched
        return -1.0 if first is not None and item.start <= first else item.start

    ordered = sorted((launched(item), item.end) for item in kernels)

    def begins(time: float) -> float:
        return max([time, *(end for launch, end in ordered if launch < time)])

    counts = [sum(start <= launch < end for launch, _ in ordered) for start, end in marks]
    some = sorted(count for count in counts if count)
    least = max(1.0, 0.5 * some[len(some) // 2]) if len(some) > 2 else 1.0
    steps: list[Interval] = []
    last = float("-inf")
    for (start, end), count in zip(marks, counts, strict=True):
        step = (max(begins(start), last), begins(end))
        last = step[1]
        if count >= least and step[1] > step[0]:
            steps.append(step)
    return steps


def _inside(intervals: list[Interval], windows: list[Interval]) -> list[Interval]:
    return [
        (max(start, low), min(end, high))
        for start, end in intervals
        for low, high in windows
        if start < high and end > low
    ]


def _length(intervals: list[Interval]) -> float:
    total, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
