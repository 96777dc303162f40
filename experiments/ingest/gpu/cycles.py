"""Joins the cycles of one schedule: a profiler that repeats writes a file for each, together one recording.

`torch.profiler.schedule(wait, warmup, active, repeat=2)` profiles steps 3–5 and 9–11 of one process into two files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def _device(traces: Sequence[DeviceTrace], shifts: Sequence[int]) -> DeviceTrace:
    def column(name: str, offsets: Sequence[int] | NDArray[np.int64], none: int = UNKNOWN) -> NDArray[Any]:
        columns = [getattr(trace, name) for trace in traces]
        return np.concatenate([np.where(values == none, none, values + offset)
                               for values, offset in zip(columns, offsets, strict=True)])  # fmt: skip

    def firsts(listed: str) -> NDArray[np.int64]:
        """Return where the list of each cycle begins, when all stand one after the other."""
        return np.cumsum([0, *(len(getattr(trace, listed)) for trace in traces[:-1])])

    same = [0] * len(traces)
    causes = {cause for trace in traces for cause in trace.host_waits}
    waits = {
        cause: np.concatenate(
            [
                trace.host_waits[cause] + shift
                for trace, shift in zip(traces, shifts, strict=True)
                if cause in trace.host_waits
            ]
        )
        for cause in causes
    }
    return replace(
        traces[0],
        kinds=[kind for trace in traces for kind in trace.kinds],
        kind=column("kind", firsts("kinds"), -1),
        starts=column("starts", shifts),
        ends=column("ends", shifts),
        launched=column("launched", shifts),
        issued=column("issued", shifts),
        flops=column("flops", same),
        moved_bytes=column("moved_bytes", same),
        blocks=column("blocks", same),
        ranks=column("ranks", firsts("rank_groups"), -1),
        streams=column("streams", same),
        rank_groups=[group for trace in traces for group in trace.rank_groups],
        steps=_steps([trace.steps for trace in traces], shifts),
        host_waits=waits,
        memory_peak_bytes=max((trace.memory_peak_bytes for trace in traces if trace.memory_peak_bytes), default=None),
    )
