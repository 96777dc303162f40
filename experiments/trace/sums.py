"""Sums over a range of time: sums by class and name, what each core did, gaps, the longest spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.trace.layout import OPS
from experiments.trace.trace import Trace

Ps = NDArray[np.int64]

#: Names that are listed, by time.
MOST_NAMES = 50


@dataclass(frozen=True)
class Span:
    """One event: track, its number there, start and duration in ps, index of its name."""

    track: int
    number: int
    start: int
    duration: int
    name: int


@dataclass(frozen=True)
class CoreSum:
    """One core in the stretch.  busy_ps: time in which any op ran; by_class: [classes] ps of its ops."""

    core: int
    busy_ps: int
    by_class: tuple[int, ...]


@dataclass(frozen=True)
class Gap:
    """A stretch in which a core ran no op.  after, before: names of the ops beside it, None at the ends."""

    core: int
    start: int
    duration: int
    after: int | None
    before: int | None


@dataclass(frozen=True)
class Sums:
    """Of [t0, t1) over some cores, events cut at its ends.

    window_ps: its length.  by_name: (name, ps, events) by descending time.  cores: in order.  gaps, longest: by
    descending duration.
    """

    t0: int
    t1: int
    by_class: tuple[int, ...]
    by_name: tuple[tuple[int, int, int], ...]
    cores: tuple[CoreSum, ...]
    gaps: tuple[Gap, ...]
    longest: tuple[Span, ...]
    events: int

    @property
    def window_ps(self) -> int:
        return self.t1 - self.t0


def sums(
    trace: Trace,
    t0: int,
    t1: int,
    classes: NDArray[np.uint8],
    count: int,
    *,
    most: int = 20,
) -> Sums:
    """Sums of the ops that ran in [t0, t1).

    classes: of each name, numbers below count.  most: gaps and spans listed.
    """
    tracks = trace.tracks_of([OPS])
    n = len(trace.names)
    time, events = np.zeros(n), np.zeros(n, np.int64)
    by_core: list[CoreSum] = []
    gaps: list[Gap] = []
    longest: list[Span] = []
    for core in sorted({trace.tracks[i].core for i in tracks}):
        of_core = np.zeros(n)
        parts: list[tuple[Ps, Ps, NDArray[np.uint32]]] = []
        for track in (i for i in tracks if trace.tracks[i].core == core):
            begin, end, names, first = _inside(trace, track, t0, t1)
            of_core += np.bincount(names, weights=end - begin, minlength=n)
            events += np.bincount(names, minlength=n)
            parts.append((begin, end, names))
            longest += _longest(trace, track, first, begin, end, most)
        busy, idle = _gaps(core, parts, t0, t1, most)
        gaps += idle
        time += of_core
        by_class = np.bincount(classes, weights=of_core, minlength=count)
        by_core.append(CoreSum(core, busy, tuple(by_class.astype(np.int64).tolist())))
    order = np.argsort(-time, kind="stable")[:MOST_NAMES]
    return Sums(
        t0,
        t1,
        tuple(np.bincount(classes, weights=time, minlength=count).astype(np.int64).tolist()),
        tuple((int(i), int(time[i]), int(events[i])) for i in order if events[i]),
        tuple(by_core),
        tuple(sorted(gaps, key=lambda gap: -gap.duration)[:most]),
        tuple(sorted(longest, key=lambda span: -span.duration)[:most]),
        int(events.sum()),
    )


def _inside(trace: Trace, track: int, t0: int, t1: int) -> tuple[Ps, Ps, NDArray[np.uint32], NDArray[np.int64]]:
    """(begin, end, name) of each event of a track, cut at the ends of [t0, t1), and its number."""
    part = trace.between(track, t0, t1)
    starts, durations = trace.starts(track)[part], trace.durations(track)[part]
    begin, end = np.maximum(starts, t0), np.minimum(starts + durations, t1)
    keep = (end > begin) | ((durations == 0) & (starts >= t0))
    return begin[keep], end[keep], trace.name_ids(track)[part][keep], np.flatnonzero(keep) + part.start


def _longest(trace: Trace, track: int, numbers: NDArray[np.int64], begin: Ps, end: Ps, most: int) -> list[Span]:
    length = end - begin
    places = np.argpartition(-length, most)[:most] if len(length) > most else np.arange(len(length))
    starts, durations, names = trace.starts(track), trace.durations(track), trace.name_ids(track)
    return [
        Span(track, number, int(starts[number]), int(durations[number]), int(names[number]))
        for number in numbers[places].tolist()
    ]


def _gaps(
    core: int, parts: Sequence[tuple[Ps, Ps, NDArray[np.uint32]]], t0: int, t1: int, most: int
) -> tuple[int, list[Gap]]:
    """(ps in which any op ran, the longest stretches in which none did)."""
    begin, end, names = (np.concatenate([part[i] for part in parts]) for i in range(3))
    if not len(begin):
        return 0, [Gap(core, t0, t1 - t0, None, None)] if t1 > t0 else []
    order = np.argsort(begin, kind="stable")
    begin, end, names = begin[order], end[order], names[order]
    # The end so far, and the op that it belongs to.
    reach = np.maximum.accumulate(end)
    last = np.maximum.accumulate(np.where(end >= reach, np.arange(len(end)), 0))
    starts = np.append(t0, reach)
    stops = np.append(begin, t1)
    length = np.maximum(stops - starts, 0)
    places = np.argsort(-length, kind="stable")[:most]
    idle = [
        Gap(
            core,
            int(starts[place]),
            int(length[place]),
            int(names[last[place - 1]]) if place else None,
            int(names[place]) if place < len(names) else None,
        )
        for place in places.tolist()
        if length[place] > 0
    ]
    return int(t1 - t0 - length.sum()), idle


def at(trace: Trace, track: int, time: int, slack: int = 0) -> Span | None:
    """The event of a track at a moment: the innermost one there, else the nearest within slack; None where there is
    none."""
    part = trace.between(track, time - slack, time + slack + 1)
    starts, durations = trace.starts(track)[part], trace.durations(track)[part]
    if not len(starts):
        return None
    holds = np.flatnonzero((starts <= time) & (starts + np.maximum(durations, 1) > time))
    if len(holds):
        place = int(holds[np.argmin(durations[holds])])
    else:
        away = np.maximum(starts - time, time - (starts + durations))
        place = int(away.argmin())
        if away[place] > slack:
            return None
    number = part.start + place
    return Span(track, number, int(starts[place]), int(durations[place]), int(trace.name_ids(track)[number]))


def spans_of(trace: Trace, names: Sequence[int], t0: int, t1: int, most: int = 1000) -> list[Span]:
    """The events with these names that overlap [t0, t1), in order of time, up to the limit."""
    wanted = np.zeros(len(trace.names), bool)
    wanted[list(names)] = True
    spans: list[Span] = []
    for track in range(len(trace.tracks)):
        part = trace.between(track, t0, t1)
        ids = trace.name_ids(track)[part]
        starts, durations = trace.starts(track)[part], trace.durations(track)[part]
        places = np.flatnonzero(wanted[ids] & (starts + np.maximum(durations, 1) > t0))[:most]
        spans += [Span(track, part.start + i, int(starts[i]), int(durations[i]), int(ids[i])) for i in places.tolist()]
    return sorted(spans, key=lambda span: (span.start, span.track))[:most]
