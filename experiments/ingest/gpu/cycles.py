"""Joins the cycles of one schedule: a profiler that repeats writes a file for each, together one recording.

`torch.profiler.schedule(wait, warmup, active, repeat=2)` profiles steps 3–5 and 9–11 of one process into two files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace, TraceFile
from experiments.ingest.marks import Steps


def joined(recordings: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the recordings, with the cycles of one process as one, in order of time."""
    by_process: dict[object, list[TraceFile]] = defaultdict(list)
    for index, recording in enumerate(recordings):
        marked = recording.process and recording.steps.numbers and recording.span_ns
        key = (recording.rank, recording.host_name, recording.process) if marked else index
        by_process[key].append(recording)
    result: list[TraceFile] = []
    for cycles in by_process.values():
        cycles = sorted(cycles, key=lambda one: one.span_ns or (0, 0))
        result += [_join(cycles)] if len(cycles) > 1 and _follow(cycles) else cycles
    return result


def _follow(cycles: Sequence[TraceFile]) -> bool:
    """Return whether later cycles have later steps, at later times, of the same devices."""
    devices = {tuple((trace.name, trace.device_name) for trace in cycle.devices) for cycle in cycles}
    spans = [cycle.span_ns or (0, 0) for cycle in cycles]
    later = all(
        one.steps.numbers[-1] < two.steps.numbers[0] and before[1] <= after[0]
        for one, two, before, after in zip(cycles, cycles[1:], spans, spans[1:], strict=False)
    )
    return len(devices) == 1 and later


def _join(cycles: Sequence[TraceFile]) -> TraceFile:
    """Return one recording of the cycles, at the first one's zero."""
    first, last = cycles[0], cycles[-1]
    spans = [cycle.span_ns or (0, 0) for cycle in cycles]
    shifts = [(span[0] - spans[0][0]) * 1000 for span in spans]
    return replace(
        first,
        file=", ".join(cycle.file for cycle in cycles),
        devices=tuple(_device(traces, shifts) for traces in zip(*(cycle.devices for cycle in cycles), strict=True)),
        steps=_steps([cycle.steps for cycle in cycles], shifts),
        span_ns=(spans[0][0], (last.span_ns or (0, 0))[1]),
    )


def _steps(marked: Sequence[Steps], shifts: Sequence[int]) -> Steps:
    return Steps(
        tuple(number for steps in marked for number in steps.numbers),
        np.concatenate([steps.starts + shift for steps, shift in zip(marked, shifts, strict=True)]),
        np.concatenate([steps.ends + shift for steps, shift in zip(marked, shifts, strict=True)]),
        how=marked[0].how,
    )


#: Columns in which times, and places in the lists of a cycle, go on from cycle to cycle.
_TIMES, _PLACES = ("starts", "ends", "launched", "issued"), {"kind": "kinds", "ranks": "rank_groups"}


def _device(traces: Sequence[DeviceTrace], shifts: Sequence[int]) -> DeviceTrace:
    """Return one trace: each column's values one after the other, UNKNOWN and −1 as they are."""
    columns: dict[str, Any] = {}
    for field in fields(DeviceTrace):
        values = [getattr(trace, field.name) for trace in traces]
        if isinstance(values[0], list):
            columns[field.name] = [item for each in values for item in each]
        elif isinstance(values[0], np.ndarray):
            offsets: Sequence[int] = shifts if field.name in _TIMES else [0] * len(traces)
            if (listed := _PLACES.get(field.name)) is not None:
                offsets = np.cumsum([0, *(len(getattr(trace, listed)) for trace in traces[:-1])]).tolist()
            columns[field.name] = np.concatenate(
                [np.where((each == UNKNOWN) | (each == -1), each, each + offset) if offset else each
                 for each, offset in zip(values, offsets, strict=True)]
            )  # fmt: skip
    waits = [(cause, times + shift) for trace, shift in zip(traces, shifts, strict=True)
             for cause, times in trace.host_waits.items()]  # fmt: skip
    return replace(
        traces[0],
        **columns,
        steps=_steps([trace.steps for trace in traces], shifts),
        host_waits={cause: np.concatenate([times for of, times in waits if of == cause]) for cause in dict(waits)},
        memory_peak_bytes=max((trace.memory_peak_bytes for trace in traces if trace.memory_peak_bytes), default=None),
    )
