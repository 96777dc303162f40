"""Waiting inside collectives: a NCCL kernel runs from its rank's arrival, so it contains the wait for the last one.

The same collective on several ranks takes its shortest time on the rank that came last: that is the time to move the
data; what it took longer on the others is waiting for the last.  Clocks of hosts are not compared, durations only.
Source: HolisticTraceAnalysis (straggler) and TraceLens (NcclAnalyser) take the shortest over ranks in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.ingest.gpu.device import DeviceTrace, Kind
from experiments.ingest.intervals import Ps
from experiments.ingest.marks import Steps

#: One sequence of collectives that a group of ranks runs together: kind, ranks, payload, step.
_Series = tuple[str, tuple[int, ...], float | None, int]


#: Seconds by op: (longer than the shortest over the ranks, time of what could be compared).
RankWaits = Mapping[Kind, tuple[float, float]]


def waits(traces: Sequence[DeviceTrace], steps: Sequence[Steps]) -> RankWaits:
    """What ranks waited for each other; empty of collectives that fewer than two recorded ranks ran equally often."""
    series: dict[_Series, list[tuple[DeviceTrace, Ps]]] = defaultdict(list)
    for trace, marked in zip(traces, steps, strict=True):
        for key, events in _series(trace, marked):
            series[key].append((trace, events))
    waited: dict[Kind, tuple[float, float]] = {}
    for sides in series.values():
        if len(sides) < 2 or len({len(events) for _, events in sides}) > 1:
            continue
        durations = np.stack([trace.ends[events] - trace.starts[events] for trace, events in sides])
        longer = durations - durations.min(axis=0)
        for (trace, events), own, extra in zip(sides, durations, longer, strict=True):
            for event, time, wait in zip(events.tolist(), own.tolist(), extra.tolist(), strict=True):
                kind = trace.kinds[int(trace.kind[event])]
                before = waited.get(kind, (0.0, 0.0))
                waited[kind] = before[0] + wait * 1e-12, before[1] + time * 1e-12
    return waited


def _series(trace: DeviceTrace, steps: Steps) -> Iterator[tuple[_Series, Ps]]:
    """(key, its events in order of time) of one rank."""
    events = np.flatnonzero(trace.ranks >= 0)
    events = events[np.argsort(trace.starts[events], kind="stable")]
    if len(steps):
        index = np.searchsorted(steps.starts, trace.starts[events], side="right") - 1
        inside = (index >= 0) & (trace.starts[events] < steps.ends[np.maximum(index, 0)])
        events, number = events[inside], np.array(steps.numbers)[index[inside]]
    else:
        number = np.full(len(events), -1)
    by_exchange: dict[_Series, list[int]] = defaultdict(list)
    for event, step in zip(events.tolist(), number.tolist(), strict=True):
        exchange = trace.kinds[int(trace.kind[event])].exchange
        if exchange is not None and exchange.kind != "send/recv":
            by_exchange[exchange.kind, trace.rank_groups[int(trace.ranks[event])], exchange.payload_bytes, step].append(
                event
            )
    for key, members in by_exchange.items():
        yield key, np.array(members, np.int64)
