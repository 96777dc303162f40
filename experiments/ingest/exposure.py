"""Single ops on one core: how long they took, how long a collective was in flight, and how much of that nothing hid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.in_flight import InFlight
from experiments.ingest.intervals import IntervalUnion, Ps

#: (program id, op name)
OpKey = tuple[str, str]
#: Ops below this share of their core's time are left out, unless they are collectives: their spread weighs nothing.
LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class OpTime:
    """One op on one core: occurrences and their time; of a collective, time in flight and exposed in the window, of a
    copy the time in flight."""

    count: int
    time_s: float
    in_flight_s: float | None = None
    exposed_s: float | None = None

    def plus(self, other: OpTime) -> OpTime:
        def both(one: float | None, two: float | None) -> float | None:
            return two if one is None else one if two is None else one + two

        return OpTime(
            self.count + other.count,
            self.time_s + other.time_s,
            both(self.in_flight_s, other.in_flight_s),
            both(self.exposed_s, other.exposed_s),
        )


def exposure(
    running: InFlight, flights: InFlight, others: IntervalUnion, window: IntervalUnion
) -> dict[int, tuple[float, float]]:
    """(time in flight, exposed time) in ps inside the window, by owner.

    A moment is exposed in which no other op runs and a collective is in flight.  It belongs to the collective whose op
    runs then; where none does, the core waits for all that are in flight, and each has an equal part.  So the sum over
    owners is the core's exposed time.  others: when any op but collectives ran.
    """
    flights = flights.merged()
    keys, index = np.unique(flights.owner, return_inverse=True)
    flown = np.bincount(index, window.within(flights.starts, flights.ends), len(keys))
    exposed = _shared(running.merged(), keys, others, window)
    exposed += _shared(flights, keys, others.union(IntervalUnion.of(running.starts, running.ends)), window)
    return {int(key): (float(f), float(e)) for key, f, e in zip(keys, flown, exposed, strict=True)}


def _shared(
    flights: InFlight, keys: NDArray[np.int64], others: IntervalUnion, window: IntervalUnion
) -> NDArray[np.float64]:
    """By owner, its part of the window's moments in which no other op runs, shared equally among what is in flight."""
    if not len(flights.starts):
        return np.zeros(len(keys))
    bounds = np.unique(np.concatenate((flights.starts, flights.ends)))
    first, last = np.searchsorted(bounds, flights.starts), np.searchsorted(bounds, flights.ends)
    steps = np.bincount(first, minlength=len(bounds)) - np.bincount(last, minlength=len(bounds))
    count = np.maximum(np.cumsum(steps)[:-1], 1)
    left, right = bounds[:-1], bounds[1:]
    # What of the window no other op covers: (window or others) less others.
    open_ps = window.union(others).within(left, right) - others.within(left, right)
    shared = np.concatenate(([0.0], np.cumsum(open_ps / count)))
    parts = np.bincount(np.searchsorted(keys, flights.owner), shared[last] - shared[first], len(keys))
    return parts.astype(np.float64)


def op_times(
    kind: NDArray[np.int64],
    starts: Ps,
    ends: Ps,
    names: Mapping[int, OpKey],
    running: InFlight,
    flights: InFlight,
    others: IntervalUnion,
    window: IntervalUnion,
    copies: InFlight,
) -> dict[OpKey, OpTime]:
    """Times of the ops that matter on one core, by program and name; kind, starts, ends: its events without loops.

    running, flights, others, window: see `exposure`.  copies: when copies were in flight.
    """
    inside = window.within(starts, ends) > 0
    keys, index = np.unique(kind[inside], return_inverse=True)
    if not len(keys):
        return {}
    times = np.bincount(index, (ends - starts)[inside])
    counts = np.bincount(index)
    flown: dict[int, tuple[float, float | None]] = {**exposure(running, flights, others, window)}
    copies = copies.merged()
    for key, flight in zip(copies.owner.tolist(), window.within(copies.starts, copies.ends).tolist(), strict=True):
        flown[key] = (flown.get(key, (0.0, None))[0] + flight, None)
    wanted = (times >= LEAST_SHARE * times.sum()) | np.isin(keys, np.array([*flown], np.int64))
    by_op: dict[OpKey, OpTime] = {}
    for key, time, count in zip(keys[wanted].tolist(), times[wanted].tolist(), counts[wanted].tolist(), strict=True):
        if key not in names:
            continue
        in_flight, exposed = flown.get(key, (None, None))
        mine = OpTime(
            count,
            time * 1e-12,
            None if in_flight is None else in_flight * 1e-12,
            None if exposed is None else exposed * 1e-12,
        )
        before = by_op.get(names[key])  # an op may be known under several ids
        by_op[names[key]] = mine if before is None else before.plus(mine)
    return by_op
