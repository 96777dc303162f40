"""Steps on the device, from the host's marks.

A GPU runs behind its host: when the host begins step n, the device may still work on step n − 1.  A step therefore
begins on the device when its host begins it, or, if that is later, when everything launched before has ended; it ends
where the same rule puts the end of the host's mark.  So steps tile the device's time, and what the device waits for at
the head of a step (data loading) belongs to that step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.intervals import Ps
from experiments.ingest.marks import NO_STEPS, Steps

#: A step in which fewer than this share of the usual number of ops was launched was not recorded whole.
LEAST_OPS = 0.5


def launch_times(trace: DeviceTrace) -> Ps:
    """When each event was launched: as recorded; before everything for kernels before the first recorded launch could
    have run; else no later than its own start."""
    known = trace.launched != UNKNOWN
    launched = np.where(known, trace.launched, trace.starts)
    if known.any():
        first = trace.starts[known].min()
        launched[~known & (trace.starts <= first)] = UNKNOWN
    return launched


def device_steps(trace: DeviceTrace) -> tuple[Steps, list[str]]:
    """The steps recorded whole, and why others were left out, as sentences."""
    marked = trace.steps
    if not marked.numbers or not len(trace.starts):
        return NO_STEPS, []
    launched = launch_times(trace)
    order = np.argsort(launched, kind="stable")
    sorted_launches, reach = launched[order], np.maximum.accumulate(trace.ends[order])

    def boundary(times: Ps) -> Ps:
        index = np.searchsorted(sorted_launches, times, side="left")
        return np.maximum(times, np.where(index > 0, reach[np.maximum(index - 1, 0)], times))

    host_starts, host_ends = np.array(marked.starts, np.int64), np.array(marked.ends, np.int64)
    starts, ends = boundary(host_starts), boundary(host_ends)
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    counts = np.searchsorted(sorted_launches, host_ends) - np.searchsorted(sorted_launches, host_starts)
    whole = (counts >= _fewest(counts)) & (ends > starts)
    if not whole.any():
        return NO_STEPS, ["No device activity was launched in any of the marked steps."]
    left_out = [
        f"Step {number} is excluded: {_why(int(count))}."
        for number, count, kept in zip(marked.numbers, counts, whole, strict=True)
        if not kept
    ]
    numbers = tuple(number for number, kept in zip(marked.numbers, whole, strict=True) if kept)
    return Steps(numbers, starts[whole], ends[whole]), left_out


def _fewest(counts: NDArray[np.int64]) -> float:
    some = counts[counts > 0]
    return max(1.0, LEAST_OPS * float(np.median(some))) if len(some) > 2 else 1.0


def _why(count: int) -> str:
    if not count:
        return "no device activity was launched in it"
    return f"only {count:,} device ops were launched in it, fewer than half the usual number"
