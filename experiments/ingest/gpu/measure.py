"""One device's trace → its timeline: what covered each moment of the steps, and why the device was idle.

A moment belongs to compute first, then to collectives (exposed: a collective kernel ran and no other kernel did), then
to copies between host and device.  What is left is idle, and is divided by what the next op to run was waiting for.  If
the host launched it only after the device had run dry, by what the host did until then (`Recorded.gaps`: `input`,
`synchronisation`, …, else `launch`); `queued` where, or from when, it had been launched (dependencies, another stream);
`unknown` where its launch is not in the trace.  Late launches that wait for a module to be loaded or compiled are
`rare`, as is idle time of which a few gaps hold half, in a recording of few steps: nothing shows that it comes back.
In a step's parts all but `input` of what a late launch explains are `launch`.

Without steps, the window begins where the start-up ends: see `start_up`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.exposure import OpKey, exposure, op_times
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.gpu.kernels import HOST_COPIES
from experiments.ingest.gpu.steps import QUEUE_PS
from experiments.ingest.in_flight import InFlight
from experiments.ingest.intervals import IntervalUnion, Ps
from experiments.ingest.marks import Steps
from experiments.ingest.timeline import CoreTimeline, parts_of, window_of

COMPUTE, COLLECTIVE, HOST_COPY = 0, 1, 2
SYNCHRONISATION, LOADING = "synchronisation", "loading"
#: A call that waits for the device returns within this time of the end of its last op.
RETURN_PS = 5_000_000
#: In so many steps, what happens once tells itself from what happens in each.
SEVERAL = 3
#: Where fewer gaps, each among at least so many others, hold half of the idle time, nothing shows that it comes back.
FEW_GAPS, MANY_GAPS = 5, 20
#: A gap of a start-up is so many times as long as any after it, and at most this share of the work comes before it.
UNLIKE_LATER, LEAST_OF_WORK = 10, 1 / 3
#: Share of what a device is busy, and number of kernels, from which the time of its kernels is what was recorded.
LEAST_WORK, FEW_KERNELS = 0.5, 20
Classes = NDArray[np.int64]


def classes(trace: DeviceTrace) -> Classes:
    """COMPUTE, COLLECTIVE or HOST_COPY of each event."""
    by_kind = [
        COLLECTIVE if kind.exchange else HOST_COPY if kind.category in HOST_COPIES else COMPUTE for kind in trace.kinds
    ]
    return np.array(by_kind, np.int64)[trace.kind] if by_kind else np.zeros(0, np.int64)


def window(trace: DeviceTrace, steps: Steps) -> IntervalUnion:
    """Return the steps; without any, the time from the first kernel after the start-up to the last: copies before and
    after are results, unless there are few kernels or the device is busy mostly with copies."""
    if len(steps):
        return window_of(steps, 0, 0)
    first, last = _working(trace)
    return window_of(steps, start_up(trace, first, last), last)


def start_up_ps(trace: DeviceTrace, steps: Steps) -> int:
    """Return the length of the start-up that `window` leaves out."""
    return 0 if len(steps) else int(window(trace, steps).starts[0]) - _working(trace)[0]


def _working(trace: DeviceTrace) -> tuple[int, int]:
    kernels = classes(trace) != HOST_COPY
    kernels = kernels if kernels.any() else ~kernels
    first, last = int(trace.starts[kernels].min()), int(trace.ends[kernels].max())
    within = np.clip(np.minimum(trace.ends, last) - np.maximum(trace.starts, first), 0, None)
    if kernels.sum() < FEW_KERNELS or within.sum() < LEAST_WORK * (trace.ends - trace.starts).sum():
        return int(trace.starts.min()), int(trace.ends.max())
    return first, last


def start_up(trace: DeviceTrace, first: int, last: int) -> int:
    """Return when the start-up of a recording without steps ends, `first` where it has none: with the last gap that is
    `UNLIKE_LATER` times as long as any of those, many, that follow, and comes before most of the work."""
    order = np.argsort(trace.starts, kind="stable")
    begins, ends = trace.starts[order], np.maximum.accumulate(trace.ends[order])
    gaps, at = begins[1:] - ends[:-1], begins[1:]
    inside = (gaps > 0) & (at > first) & (at <= last)
    done = np.cumsum((trace.ends - trace.starts)[order])
    gaps, at, done = gaps[inside], at[inside], done[:-1][inside] / done[-1]
    if len(gaps) <= MANY_GAPS:
        return first
    longest_after = np.maximum.accumulate(gaps[::-1])[::-1][1:]
    unlike = gaps[:-1] >= UNLIKE_LATER * longest_after
    unlike &= done[:-1] <= LEAST_OF_WORK
    return int(at[:-MANY_GAPS][unlike[: len(gaps) - MANY_GAPS]].max(initial=first))


def measure(trace: DeviceTrace, steps: Steps, names: Mapping[int, OpKey]) -> CoreTimeline:
    """The timeline of a device with at least one event.  names: (program, name) of each kind."""
    what = classes(trace)

    def cover(*wanted: int) -> IntervalUnion:
        mask = np.isin(what, wanted)
        return IntervalUnion.of(trace.starts[mask], trace.ends[mask])

    compute, talking = cover(COMPUTE), cover(COLLECTIVE)
    with_talk = compute.union(talking)
    busy = with_talk.union(cover(HOST_COPY))
    first, last = int(trace.starts.min()), int(trace.ends.max())
    profiled = window(trace, steps)
    gaps = _gaps(trace, busy, profiled, len(steps))
    with_input = busy.union(gaps["input"])
    with_launch = with_input.union(gaps["launch"])

    def inside(covered: IntervalUnion) -> float:
        return float(covered.within(profiled.starts, profiled.ends).sum()) * 1e-12

    layers = [("compute", compute), ("collective", with_talk), ("host_transfer", busy)]
    layers += [("input", with_input), ("launch", with_launch)] if (trace.issued != UNKNOWN).any() else []
    gaps_s: dict[str, float] = {}
    covered, inside_s = busy, inside(busy)
    for cause, gap in gaps.items():
        covered = covered.union(gap)
        gaps_s[cause] = inside(covered) - inside_s
        inside_s += gaps_s[cause]
    running, copying = _flights(trace, what == COLLECTIVE), what == HOST_COPY
    return CoreTimeline(
        name=trace.name,
        host=trace.host,
        numbers=steps.numbers,
        durations_s=tuple(((steps.ends - steps.starts) * 1e-12).tolist()),
        parts_s=parts_of(steps, layers),
        window_s=profiled.total * 1e-12,
        busy_s=inside(busy),
        communication_s=inside(talking),
        collective_s=inside(talking),
        exposed_s=inside(with_talk) - inside(compute),
        span_s=(max(last, int(profiled.ends[-1])) - min(first, int(profiled.starts[0]))) * 1e-12,
        ops=len(np.unique(trace.kind)),
        events=len(trace.kind),
        op_times=op_times(
            trace.kind, trace.starts, trace.ends, names, running, running, compute, profiled, _flights(trace, copying)
        ),
        host_transfer_s=inside(cover(HOST_COPY)),
        gaps_s=gaps_s,
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


def _gaps(trace: DeviceTrace, busy: IntervalUnion, window: IntervalUnion, steps: int) -> dict[str, IntervalUnion]:
    """Idle time by cause; a moment belongs to the first cause that covers it."""
    if not len(busy.starts):
        return {"input": busy, "launch": busy}
    # From the window's start to the first op is a gap too.
    opening = min(int(window.starts[0]), int(busy.starts[0]))
    gap_starts, gap_ends = np.concatenate(([opening], busy.ends[:-1])), busy.starts
    order = np.argsort(trace.starts, kind="stable")
    following = order[np.searchsorted(trace.starts[order], gap_ends, side="left")]
    launched = trace.launched[following]
    known = launched != UNKNOWN
    inside = np.minimum(gap_ends, window.ends[-1]) - np.maximum(gap_starts, window.starts[0])
    once = steps < SEVERAL and not _comes_back(np.maximum(inside, 0), trace.kind[following])
    # A call that has not returned is still launching.
    late = known & (np.maximum(launched, trace.issued[following]) > gap_starts)
    until_launch = np.minimum(launched, gap_ends)
    host = IntervalUnion.of(gap_starts[late], until_launch[late])
    waits = {cause: IntervalUnion.of(*trace.host_waits[cause].T) for cause in trace.host_waits}
    of_step = waits.keys() - {SYNCHRONISATION, LOADING}
    gaps = {cause: _intersection(wait, host) for cause, wait in waits.items() if cause in of_step}
    gaps.setdefault("input", IntervalUnion.of(gap_starts[:0], gap_starts[:0]))
    if (calls := waits.get(SYNCHRONISATION)) is not None:
        # A host that waits for the device to run dry cannot launch ahead: the gap begins as the call returns.
        blocked = late & (calls.within(gap_starts - RETURN_PS, gap_starts) > 0)
        gaps[SYNCHRONISATION] = IntervalUnion.of(gap_starts[blocked], until_launch[blocked])
    # What lies on a device that has nothing to do, long after its launch, waits for something else.
    issued = np.where(known, np.maximum(launched, trace.issued[following]), gap_ends)
    held = late & (issued < gap_ends - QUEUE_PS)
    rare = once & (late | ~known) & ~held
    gaps["rare"] = IntervalUnion.of(gap_starts[rare], gap_ends[rare])
    if (loads := waits.get(LOADING)) is not None:
        gaps["rare"] = gaps["rare"].union(_intersection(loads, IntervalUnion.of(gap_starts[late], gap_ends[late])))
    gaps["launch"] = IntervalUnion.of(gap_starts[late], np.where(held, issued, gap_ends)[late])
    queued = (known & ~late) | held
    gaps["queued"] = IntervalUnion.of(np.where(held, issued, gap_starts)[queued], gap_ends[queued])
    gaps["unknown"] = IntervalUnion.of(gap_starts[~known], gap_ends[~known])
    return gaps


def _comes_back(lengths: Ps, following: Ps) -> bool:
    """Return False if a few gaps, each before an op of another kind, hold half of the idle time.

    following: kind of the op after each gap.
    """
    longest = np.argsort(-lengths)
    total = np.cumsum(lengths[longest])
    hold_half = following[longest[: int(np.searchsorted(2 * total, total[-1])) + 1]]
    few = len(hold_half) < FEW_GAPS and np.count_nonzero(lengths > 0) >= MANY_GAPS * len(hold_half)
    return not few or len(np.unique(hold_half)) < len(hold_half)


def _intersection(one: IntervalUnion, two: IntervalUnion) -> IntervalUnion:
    """The intersection of two unions."""
    bounds: Ps = np.unique(np.concatenate((one.starts, one.ends, two.starts, two.ends)))
    if len(bounds) < 2:
        return IntervalUnion.of(bounds[:0], bounds[:0])
    left, right = bounds[:-1], bounds[1:]
    inside = (one.within(left, right) > 0) & (two.within(left, right) > 0)
    return IntervalUnion.of(left[inside], right[inside])
