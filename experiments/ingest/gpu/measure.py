"""One device's trace → its timeline: what covered each moment of the steps, and why the device was idle.

A moment belongs to compute first, then to collectives (exposed: a collective kernel ran and no other kernel did), then
to copies between host and device.  What is left is idle, and is divided by what the next op to run was waiting for:
`input` while the host waited for its data loader, `launch` from there until the op started if the host launched it only
after the device had run dry, and `idle` where it had been launched before (dependencies, synchronisation).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.exposure import OpKey, exposure, op_times
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.gpu.kernels import HOST_COPIES
from experiments.ingest.in_flight import InFlight
from experiments.ingest.intervals import IntervalUnion, Ps
from experiments.ingest.marks import Steps
from experiments.ingest.timeline import CoreTimeline

COMPUTE, COLLECTIVE, HOST_COPY = 0, 1, 2
Classes = NDArray[np.int64]


def classes(trace: DeviceTrace) -> Classes:
    """COMPUTE, COLLECTIVE or HOST_COPY of each event."""
    by_kind = [
        COLLECTIVE if kind.exchange else HOST_COPY if kind.category in HOST_COPIES else COMPUTE for kind in trace.kinds
    ]
    return np.array(by_kind, np.int64)[trace.kind] if by_kind else np.zeros(0, np.int64)


def window_of(trace: DeviceTrace, steps: Steps) -> IntervalUnion:
    """The steps, or from the first activity to the last."""
    if len(steps):
        return IntervalUnion.of(steps.starts, steps.ends)
    return IntervalUnion.of(np.array([trace.starts.min()]), np.array([trace.ends.max()]))


def measure(trace: DeviceTrace, steps: Steps, names: Mapping[int, OpKey]) -> CoreTimeline:
    """The timeline of a device with at least one event.  names: (program, name) of each kind."""
    what = classes(trace)

    def cover(*wanted: int) -> IntervalUnion:
        mask = np.isin(what, wanted)
        return IntervalUnion.of(trace.starts[mask], trace.ends[mask])

    compute, talking = cover(COMPUTE), cover(COLLECTIVE)
    with_talk = compute.union(talking)
    busy = with_talk.union(cover(HOST_COPY))
    window = window_of(trace, steps)
    inputs, launches = _gaps(trace, busy, window)
    with_input = busy.union(inputs)
    with_launch = with_input.union(launches)

    def inside(covered: IntervalUnion) -> float:
        return float(covered.within(window.starts, window.ends).sum()) * 1e-12

    parts: dict[str, tuple[float, ...]] = {}
    durations = steps.ends - steps.starts
    if len(steps):
        before = np.zeros(len(steps), np.int64)
        layers = [("compute", compute), ("collective", with_talk), ("host_transfer", busy)]
        layers += [("input", with_input), ("launch", with_launch)] if (trace.issued != UNKNOWN).any() else []
        for part, covered in layers:
            until = covered.within(steps.starts, steps.ends)
            parts[part] = tuple(((until - before) * 1e-12).tolist())
            before = until
        parts["idle"] = tuple(((durations - before) * 1e-12).tolist())
    running, copying = _flights(trace, what == COLLECTIVE), what == HOST_COPY
    first, last = int(trace.starts.min()), int(trace.ends.max())
    return CoreTimeline(
        name=trace.name,
        host=trace.host,
        numbers=steps.numbers,
        durations_s=tuple((durations * 1e-12).tolist()),
        parts_s=parts,
        window_s=window.total * 1e-12,
        busy_s=inside(busy),
        communication_s=inside(talking),
        collective_s=inside(talking),
        exposed_s=inside(with_talk) - inside(compute),
        span_s=(max(last, int(window.ends[-1])) - min(first, int(window.starts[0]))) * 1e-12,
        ops=len(np.unique(trace.kind)),
        events=len(trace.kind),
        op_times=op_times(
            trace.kind, trace.starts, trace.ends, names, running, running, compute, window, _flights(trace, copying)
        ),
        host_transfer_s=inside(cover(HOST_COPY)),
    )


def exposed_copies(trace: DeviceTrace, window: IntervalUnion) -> dict[int, float]:
    """Seconds in which a copy between host and device ran and no kernel did, by kind."""
    what = classes(trace)
    kernels = what != HOST_COPY
    copies = _flights(trace, what == HOST_COPY)
    if not len(copies.starts):
        return {}
    by_kind = exposure(copies, copies, IntervalUnion.of(trace.starts[kernels], trace.ends[kernels]), window)
    return {kind: exposed * 1e-12 for kind, (_, exposed) in by_kind.items()}


def _flights(trace: DeviceTrace, mask: NDArray[np.bool_]) -> InFlight:
    return InFlight(trace.kind[mask], trace.starts[mask], trace.ends[mask])


def _gaps(trace: DeviceTrace, busy: IntervalUnion, window: IntervalUnion) -> tuple[IntervalUnion, IntervalUnion]:
    """(idle time in which the host waited for input, idle time up to a launch that came late)."""
    if not len(busy.starts):
        return busy, busy
    # From the window's start to the first op is a gap too.
    opening = min(int(window.starts[0]), int(busy.starts[0]))
    gap_starts, gap_ends = np.concatenate(([opening], busy.ends[:-1])), busy.starts
    order = np.argsort(trace.starts, kind="stable")
    following = order[np.searchsorted(trace.starts[order], gap_ends, side="left")]
    launched = trace.launched[following]
    late = (launched != UNKNOWN) & (launched > gap_starts)
    begun = np.minimum(launched, gap_ends)
    waits = IntervalUnion.of(trace.input_waits[:, 0], trace.input_waits[:, 1])
    host = IntervalUnion.of(gap_starts[late], begun[late])
    return _intersection(waits, host), IntervalUnion.of(gap_starts[late], gap_ends[late])


def _intersection(one: IntervalUnion, two: IntervalUnion) -> IntervalUnion:
    """The intersection of two unions."""
    bounds: Ps = np.unique(np.concatenate((one.starts, one.ends, two.starts, two.ends)))
    if len(bounds) < 2:
        return IntervalUnion.of(bounds[:0], bounds[:0])
    left, right = bounds[:-1], bounds[1:]
    inside = (one.within(left, right) > 0) & (two.within(left, right) > 0)
    return IntervalUnion.of(left[inside], right[inside])
