"""Steps on the device, from the host's marks.

A GPU runs behind its host: when the host begins step n, the device may still work on step n − 1.  A step therefore
begins on the device when its host begins it, or, if that is later, when everything launched before has ended; it ends
where the same rule puts the end of the host's mark.  So steps tile the device's time, and what the device waits for at
the head of a step (data loading) belongs to that step.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.cut_steps import warm_up
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.gpu.kernels import HOST_COPIES
from experiments.ingest.intervals import Ps
from experiments.ingest.marks import ENGINE, MEASURED, NO_STEPS, REPEATED, Steps

#: A step in which fewer than this share of the usual number of ops was launched was not recorded whole.
LEAST_OPS = 0.5
_CLIPPED = "work launched before the recording began runs in it or drains"
_COLD = "the recording begins with it, and it takes more than twice as long as the later ones (warm-up, compilation)"
#: A sequence of kernels that repeats so often, takes this long and is this share of all kernels is a step.
SEVERAL, LEAST_STEP_PS, LEAST_COVERED = 3, 1_000_000_000, 0.5
#: Where all kernels of the sequence are in ranges of one name like this, it is a part of a step.
_LAYER = re.compile(r"layer|block", re.I)
#: Recordings of more kernels, and longer lists of periods, are not searched.
MOST_KERNELS, MOST_PERIODS = 400_000, 2_000
#: An idle device starts an op within this time of its launch.
QUEUE_PS = 1_000_000_000
#: Idle time at the edge of the first step from which its start is unknown, as a share of the step; work before it that
#: is none yet, as a share of all.
EDGE = 0.01
#: Part of the first step, and more than is left, by which the device catches up with its host, if earlier work drains.
DRAINED = 0.1


def launch_times(trace: DeviceTrace) -> Ps:
    """When each event was launched: as recorded; before everything for `left_over` kernels; else no later than its own
    start."""
    return np.where(trace.launched != UNKNOWN, trace.launched, np.where(left_over(trace), UNKNOWN, trace.starts))


def left_over(trace: DeviceTrace) -> NDArray[np.bool_]:
    """Return True for events launched before the recording began: a stream runs in order, so those without a launch
    that precede the first launched one of their stream (of the device, on a stream without any)."""
    known = trace.launched != UNKNOWN
    if not known.any():
        return np.zeros(len(known), np.bool_)
    streams = trace.streams if len(trace.streams) else np.zeros(len(known), np.int64)
    left = ~known & (trace.starts <= trace.starts[known].min())
    for stream in np.unique(streams[~known]).tolist():
        mine = streams == stream
        if (known & mine).any():
            left |= ~known & mine & (trace.starts <= trace.starts[known & mine].min())
    return left


def device_steps(trace: DeviceTrace) -> tuple[Steps, list[str]]:
    """The steps recorded whole, and why others were left out, as sentences."""
    launched = launch_times(trace)
    marked = trace.steps if len(trace.steps) and trace.steps.how != MEASURED else _repeated(trace, launched)
    if not marked.numbers or not len(trace.starts):
        return NO_STEPS, []
    order = np.argsort(launched, kind="stable")
    sorted_launches, reach = launched[order], np.maximum.accumulate(trace.ends[order])

    def boundary(times: Ps) -> Ps:
        index = np.searchsorted(sorted_launches, times, side="left")
        return np.maximum(times, np.where(index > 0, reach[np.maximum(index - 1, 0)], times))

    host_starts, host_ends = marked.starts, marked.ends
    starts, ends = boundary(host_starts), boundary(host_ends)
    starts[0] = max(starts[0], _unseen_until(trace, launched, int(host_starts[0])))
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    counts = np.searchsorted(sorted_launches, host_ends) - np.searchsorted(sorted_launches, host_starts)
    whole = (counts >= _fewest(counts)) & (ends > starts)
    lags = int(starts[0] - host_starts[0]), int(ends[0] - host_ends[0])
    clipped = bool(whole[0]) and whole.sum() > 2 and _is_clipped(trace, int(starts[0]), int(ends[0]), lags)
    whole[0] &= not clipped
    times = ends - starts
    kept = np.flatnonzero(whole)
    warms = warm_up(times[whole].tolist()) if marked.how != ENGINE else 0  # whose iterations differ
    cold = np.isin(np.arange(len(times)), kept[:warms])
    whole &= ~cold
    if not whole.any():
        return NO_STEPS, ["No device activity was launched in any of the marked steps."]
    left_out = [
        f"Step {number} is excluded: "
        f"{_CLIPPED if clipped and not place else _COLD if cold[place] else _why(int(count))}."
        for place, (number, count, kept) in enumerate(zip(marked.numbers, counts, whole, strict=True))
        if not kept
    ]
    numbers = tuple(number for number, kept in zip(marked.numbers, whole, strict=True) if kept)
    return Steps(numbers, starts[whole], ends[whole], how=marked.how), left_out


def _repeated(trace: DeviceTrace, launched: Ps) -> Steps:
    """The runs of one sequence of kernels, as launched, where the device runs nothing else to the end of the recording
    or of the measured range; that range where nothing repeats in it, else none."""
    measured = trace.steps
    wanted = np.array([kind.category not in HOST_COPIES for kind in trace.kinds], np.bool_)[trace.kind]
    if len(measured):
        wanted &= (launched >= measured.starts[0]) & (launched < measured.ends[-1])
    order = np.flatnonzero(wanted)
    order = order[np.argsort(launched[order], kind="stable")]
    kinds, size = trace.kind[order], len(order)
    best = (0, 0)
    if len(measured) <= 1 and size <= MOST_KERNELS:
        for place in np.flatnonzero(kinds[:-1] == kinds[-1])[::-1][:MOST_PERIODS].tolist() if size else ():
            period = size - 1 - place
            other = np.flatnonzero(kinds[:-period] != kinds[period:])
            runs = (size - (int(other[-1]) + 1 if len(other) else 0)) // period
            # What comes before is another phase, not the beginning of a longer sequence.
            before = size - runs * period
            if runs >= (2 if len(measured) else SEVERAL) and (not before or before >= period):
                best = max(best, (runs * period, -period))
    covered, period = best[0], -best[1]
    if not covered or covered < LEAST_COVERED * size:
        return measured
    first = order[size - covered :: period]
    # Layers repeat as well: in ranges that name them, and up to where the recording of a pass was cut off.
    layers = all(_LAYER.search(trace.kinds[kind].path) for kind in {*kinds[-period:].tolist()})
    if layers or trace.unserved >= period:
        return measured
    ends = np.append(launched[first[1:]], measured.ends[-1] if len(measured) else launched[order[-1]] + 1)
    if int(trace.ends[order].max() - trace.starts[first[0]]) < len(first) * LEAST_STEP_PS:
        return measured
    return Steps(tuple(range(1, len(first) + 1)), launched[first], ends, how=REPEATED)


def _is_clipped(trace: DeviceTrace, start: int, end: int, lags: tuple[int, int]) -> bool:
    """Return True if the first step begins as earlier work ends, and not with an op of its own: when the step before
    ended was not recorded; or if that work drained in it, so that the device was faster than its host.

    lags: of the device behind its host, as the step begins and ends.
    """
    left = left_over(trace)
    if not left.any() or int(trace.ends[left].max()) < start:
        return False
    if lags[0] - lags[1] > max(DRAINED * (end - start), lags[1]):
        return True
    return bool(trace.starts[~left & (trace.starts >= start)].min(initial=end) > start + EDGE * (end - start))


def _unseen_until(trace: DeviceTrace, launched: Ps, begin: int) -> int:
    """Return the start of the last op that waited in its queue, on an idle device, for work that the recording does not
    show, before the device had done much of its own; else the least time."""
    order = np.argsort(trace.starts, kind="stable")
    starts, known = trace.starts[order], launched[order]
    before = np.cumsum((trace.ends - trace.starts)[order])
    idle_since = np.append(UNKNOWN, np.maximum.accumulate(trace.ends[order])[:-1])
    waited = (known >= begin) & (starts - QUEUE_PS > np.maximum(known, idle_since))
    waited[1:] &= before[:-1] <= EDGE * before[-1]
    return int(starts[waited].max(initial=UNKNOWN))


def _fewest(counts: NDArray[np.int64]) -> float:
    some = counts[counts > 0]
    return max(1.0, LEAST_OPS * float(np.median(some))) if len(some) > 2 else 1.0


def _why(count: int) -> str:
    if not count:
        return "no device activity was launched in it"
    return f"only {count:,} device ops were launched in it, fewer than half the usual number"
