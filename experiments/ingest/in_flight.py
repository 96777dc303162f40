"""When collectives and copies are in flight on one core: from start to end, asynchronous ones too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.intervals import IntervalUnion, Ps
from experiments.ingest.planes import Events


@dataclass(frozen=True)
class InFlight:
    """Intervals in which ops were in flight; owner: event metadata id of the op each belongs to."""

    owner: NDArray[np.int64]
    starts: Ps
    ends: Ps

    @classmethod
    def of(cls, spans: Sequence[tuple[int, Ps, Ps]]) -> InFlight:
        if not spans:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        owner = np.concatenate([np.full(len(starts), key, np.int64) for key, starts, _ in spans])
        return cls(owner, np.concatenate([s for _, s, _ in spans]), np.concatenate([e for _, _, e in spans]))

    def plus(self, other: InFlight) -> InFlight:
        return InFlight(
            np.concatenate((self.owner, other.owner)),
            np.concatenate((self.starts, other.starts)),
            np.concatenate((self.ends, other.ends)),
        )

    def merged(self) -> InFlight:
        """Overlapping intervals of one owner made one: a -done op runs inside its own flight."""
        if not len(self.starts):
            return self
        keys, index = np.unique(self.owner, return_inverse=True)
        first = int(self.starts.min())
        length = int(self.ends.max()) - first + 1
        if length * len(keys) >= 1 << 62:
            covers = [IntervalUnion.of(self.starts[index == i], self.ends[index == i]) for i in range(len(keys))]
            return InFlight.of([(int(key), c.starts, c.ends) for key, c in zip(keys, covers, strict=True)])
        # Each owner's intervals are moved to a stretch of their own and merged in one go.
        shift = index * length - first
        cover = IntervalUnion.of(self.starts + shift, self.ends + shift)
        which = cover.starts // length
        back = first - which * length
        return InFlight(keys[which], cover.starts + back, cover.ends + back)


def read_flights(
    events: Events,
    kinds: dict[int, tuple[str, str]],
    texts: dict[int, str],
    wanted: Sequence[int],
    group: str,
    programs: dict[int, str],
    in_flight: Events,
) -> tuple[InFlight, InFlight]:
    """(when each op of a class ran, when it was in flight): while it ran, from a -start op to its -done op, and where
    the plane has a line of asynchronous ops, as that says.  An asynchronous one is known by its -done op.

    in_flight: events of the line of asynchronous ops.  kinds: (op name, class) and texts: HLO by kind.  wanted: the
    kinds of the class `group` that ran.
    """
    by_name = {(programs.get(key, ""), kinds[key][0]): key for key in wanted}
    mine = events.of_kinds(wanted)
    owner = {key: key for key in wanted}
    in_pairs: list[tuple[int, Ps, Ps]] = []
    for start, done, begun, ended in pairs(mine, kinds, texts, programs):
        owner[start] = done
        in_pairs.append((done, begun, ended))
    running = [(owner[key], mine.starts[at], mine.ends[at]) for key, at in _places(mine.kind).items()]
    for key in np.unique(in_flight.kind).tolist():
        name, its_class = kinds.get(key, ("", ""))
        if its_class == group:
            flown, program = in_flight.of_kinds([key]), programs.get(key, "")
            # The line calls every copy `async-copy`; its text names the op.
            op_key = by_name.get((program, name)) or by_name.get((program, _name_in(texts.get(key, ""))), key)
            in_pairs.append((owner.get(op_key, op_key), flown.starts, flown.ends))
    return InFlight.of(running), InFlight.of([*running, *in_pairs])


def pairs(
    events: Events, kinds: dict[int, tuple[str, str]], texts: dict[int, str], programs: dict[int, str]
) -> Iterator[tuple[int, int, Ps, Ps]]:
    """(kind of the -start op, kind of the -done op, starts, ends) of every asynchronous op, collective or not: each
    from where its start op begins to where its done op ends.

    events, kinds, texts, programs: as for `read_flights`.
    """
    places = _places(events.kind)
    by_program: dict[str, dict[str, int]] = {}
    for key in places:
        by_program.setdefault(programs.get(key, ""), {})[kinds.get(key, ("", ""))[0]] = key
    for by_name in by_program.values():
        for name, done in by_name.items():
            start = _start_of(name, texts.get(done, ""), by_name)
            if start is None:
                continue
            begun, ended = np.sort(events.starts[places[start]]), np.sort(events.ends[places[done]])
            # Each end belongs to the last start before it; what began before the window has none.
            index = np.searchsorted(begun, ended, side="left") - 1
            yield start, done, begun[index[index >= 0]], ended[index >= 0]


def _places(kind: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return the places of events of each kind."""
    order = np.argsort(kind, kind="stable")
    ids, firsts = np.unique(kind[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, firsts[1:]), strict=True)) if len(ids) else {}


def _start_of(done_name: str, text: str, by_name: dict[str, int]) -> int | None:
    if "-done" not in done_name:
        return None
    for operand in _operands(text):
        if operand in by_name and "-start" in operand:
            return by_name[operand]
    return by_name.get(done_name.replace("-done", "-start"))


def _name_in(text: str) -> str:
    return text.partition(" = ")[0].strip().removeprefix("%")


def _operands(text: str) -> Iterator[str]:
    """Names with a % after the equals sign of an HLO text."""
    return (match.group(1) for match in re.finditer(r"%([\w.-]+)", text.partition(" = ")[2][:20_000]))
