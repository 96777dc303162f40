"""Writes an event store from whatever a reader of profiles finds, in bounded memory.

builder = TraceBuilder(folder)
core = builder.add_core("TPU:0", host="t1v-n-0")
builder.add_steps(core, numbers, starts_ps, ends_ps)
name = builder.name("fusion.7", "compute", program="jit_step")
builder.add_events(core, OPS, starts_ps, durations_ps, [name, …])
builder.write(path)
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.trace.layout import HOST, KINDS, LANES, MAGIC, MAX_PS, MOST_EVENTS, NAME_CHARACTERS, TraceError

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]
_BYTES = 20  # an event: start, duration, name


class TraceBuilder:
    """Takes events in any order and any number of pieces; keeps them in a temporary file until `write`.

    folder: where that file lies, on a disk with room for 20 bytes an event (40 while writing).  most_events: of more,
    the first whole steps that fit are kept; of profiles without steps, the earliest events.  Times of one host share a
    zero, which may be any; hosts are aligned where they begin their first common step, since their clocks differ.
    """

    def __init__(self, folder: Path | str | None = None, most_events: int = MOST_EVENTS) -> None:
        self._spool: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 – it lives as long as the builder
        self._most = most_events
        self._cores: list[tuple[str, str]] = []
        self._steps: dict[int, NDArray[np.int64]] = {}  # [n, 3] of number, start, end
        self._tracks: dict[tuple[int, str, str], list[tuple[int, int]]] = {}  # pieces: offset in the spool, count
        self._names: dict[tuple[str, str, str | None, str], int] = {}
        self._spooled = 0
        self._dropped = 0
        self.notes: list[str] = []

    def add_core(self, name: str, host: str = "") -> int:
        """The index of a new core (`TPU:0`, `GPU 3`), or of a host for its threads."""
        self._cores.append((name, host))
        return len(self._cores) - 1

    def name(self, text: str, kind: str, *, program: str = "", op: str | None = "") -> int:
        """The index of an event's name.

        kind: of KINDS.  op: name of the op if it differs from the text; None where the event is no op.  program: of the
        op, as in `Op.program`, or any key of the `programs` that `write` is given.
        """
        if kind not in KINDS:
            raise TraceError(f"Unknown event kind {kind!r}; known: {', '.join(KINDS)}.")
        key = (text[:NAME_CHARACTERS], kind, None if op is None else op[:500], program)
        return self._names.setdefault(key, len(self._names))

    def add_steps(self, core: int, numbers: ArrayLike, starts_ps: ArrayLike, ends_ps: ArrayLike) -> None:
        """The steps of a core: numbers, and [start, end) of each."""
        table = np.stack([np.asarray(column, np.int64) for column in (numbers, starts_ps, ends_ps)], axis=1)
        table = table[(table[:, 2] > table[:, 1]) & (np.abs(table[:, 1:]) < MAX_PS).all(axis=1)]
        before = self._steps.get(core)
        table = table if before is None else np.concatenate([before, table])
        self._steps[core] = table[np.argsort(table[:, 1], kind="stable")]

    def add_events(
        self,
        core: int,
        lane: str,
        starts_ps: ArrayLike,
        durations_ps: ArrayLike,
        names: ArrayLike,
        track: str = "",
    ) -> None:
        """Events of one lane of a core: [n] starts and durations in ps, [n] indices of names.

        track: the stream or thread, where the lane has several.  Events of one track may overlap and need no order.
        """
        if lane not in LANES:
            raise TraceError(f"Unknown lane {lane!r}; known: {', '.join(LANES)}.")
        starts, durations = np.asarray(starts_ps, np.int64), np.asarray(durations_ps, np.int64)
        ids = np.asarray(names, np.uint32)
        if not len(starts) == len(durations) == len(ids):
            raise TraceError(f"Lengths differ: {len(starts)} starts, {len(durations)} durations and {len(ids)} names.")
        if len(ids) and int(ids.max()) >= len(self._names):
            raise TraceError(f"Name {int(ids.max())} was never given; there are {len(self._names)}.")
        sound = (np.abs(starts) < MAX_PS) & (durations >= 0) & (durations < MAX_PS)
        if not sound.all():
            starts, durations, ids = starts[sound], durations[sound], ids[sound]
        room = max(2 * self._most - self._spooled, 0)
        if len(starts) > room:
            self._dropped += len(starts) - room
            starts, durations, ids = starts[:room], durations[:room], ids[:room]
        if not len(starts):
            return
        self._tracks.setdefault((core, lane, track), []).append((self._spool.tell(), len(starts)))
        self._spooled += len(starts)
        for column in (starts, durations, ids):
            self._spool.write(column.tobytes())

    @property
    def event_count(self) -> int:
        """Events taken so far."""
        return self._spooled

    def write(self, path: Path | str, *, programs: Mapping[str, str] | None = None) -> int:
        """Write the file and return how many events it holds; 0, and no file, where there were none.

        programs: names of programs by what `name` was given as program.
        """
        if not self._spooled:
            return 0
        shifts = self._shifts()
        cuts = self._cuts()
        with Path(path).open("wb") as file:
            file.write(MAGIC + bytes(8))
            tracks, total, zero = [], 0, self._zero(shifts, cuts)
            for (core, lane, name), pieces in sorted(self._tracks.items(), key=_order):
                columns = self._read(pieces, cuts.get(core))
                if not len(columns[0]):
                    continue
                offset = _write_columns(file, columns, shifts[core] - zero)
                count = len(columns[0])
                tracks.append({"core": core, "lane": lane, "name": name[:120], "count": count, "offset": offset})
                total += count
            cores = []
            for index, (name, host) in enumerate(self._cores):
                steps = self._kept_steps(index, cuts)
                offset = _aligned(file)
                if len(steps):
                    steps = steps + np.array([0, 1, 1], np.int64) * (shifts[index] - zero)
                    file.write(np.ascontiguousarray(steps.T, "<i8").tobytes())
                cores.append({"name": name[:120], "host": host[:200], "steps": len(steps), "offset": offset})
            if self._dropped:
                self.notes.append(f"{self._dropped:,} events beyond {2 * self._most:,} were not stored.")
            names = zlib.compress(json.dumps(self._name_rows(programs or {})).encode(), 6)
            names_at = _aligned(file)
            file.write(names)
            header = {"version": 1, "cores": cores, "tracks": tracks, "notes": self.notes,
                      "names": {"offset": names_at, "bytes": len(names), "count": len(self._names)}}  # fmt: skip
            header_at = _aligned(file)
            file.write(json.dumps(header).encode())
            file.seek(len(MAGIC))
            file.write(np.uint64(header_at).astype("<u8").tobytes())
        return total

    def close(self) -> None:
        self._spool.close()

    def _read(self, pieces: Sequence[tuple[int, int]], cut: int | None) -> Columns:
        """The events of a track in order of start, the longest first where starts are equal."""
        parts: list[Columns] = []
        for offset, count in pieces:
            self._spool.seek(offset)
            data = self._spool.read(count * _BYTES)
            parts.append(
                (
                    np.frombuffer(data, np.int64, count),
                    np.frombuffer(data, np.int64, count, 8 * count),
                    np.frombuffer(data, np.uint32, count, 16 * count),
                )
            )
        starts, durations, names = (np.concatenate([part[i] for part in parts]) for i in range(3))
        if cut is not None:
            keep = starts < cut
            starts, durations, names = starts[keep], durations[keep], names[keep]
        if len(starts) > 1 and (starts[1:] < starts[:-1]).any():
            order = np.lexsort((-durations, starts))
            starts, durations, names = starts[order], durations[order], names[order]
        return starts, durations, names

    def _shifts(self) -> list[int]:
        """What is added to the times of each core, so that hosts begin their first common step together."""
        by_host: dict[str, list[int]] = {}
        for index, (_, host) in enumerate(self._cores):
            by_host.setdefault(host, []).append(index)
        if len(by_host) < 2:
            return [0] * len(self._cores)
        with_steps = {host: self._first_starts(cores) for host, cores in by_host.items()}
        known = [set(starts_by_step) for starts_by_step in with_steps.values() if starts_by_step]
        common = set.intersection(*known) if known else set()
        step = min(common) if common else None
        shifts = [0] * len(self._cores)
        for host, cores in by_host.items():
            anchor = with_steps[host].get(step) if step is not None else None
            if anchor is None:
                anchor = self._first_event(cores)
            for core in cores:
                shifts[core] = -anchor
        where = f"the start of step {step}" if step is not None else "their first event"
        self.notes.append(f"The clocks of {len(by_host)} hosts differ: they are aligned at {where}.")
        return shifts

    def _first_starts(self, cores: Sequence[int]) -> dict[int, int]:
        """Earliest start of each step over some cores."""
        starts: dict[int, int] = {}
        for core in cores:
            for number, start, _ in self._steps.get(core, np.zeros((0, 3), np.int64)).tolist():
                starts[number] = min(starts.get(number, start), start)
        return starts

    def _first_event(self, cores: Sequence[int]) -> int:
        wanted = set(cores)
        firsts = [self._first(pieces) for (core, _, _), pieces in self._tracks.items() if core in wanted]
        return min(firsts, default=0)

    def _first(self, pieces: Sequence[tuple[int, int]]) -> int:
        firsts = []
        for offset, count in pieces:
            self._spool.seek(offset)
            firsts.append(int(np.frombuffer(self._spool.read(8 * count), np.int64).min()))
        return min(firsts)

    def _zero(self, shifts: Sequence[int], cuts: Mapping[int, int]) -> int:
        """Where the first device event or step stands after the shifts; of hosts alone, their first event."""
        firsts = [
            self._first(pieces) + shifts[core] for (core, lane, _), pieces in self._tracks.items() if lane != HOST
        ] or [self._first(pieces) + shifts[core] for (core, _, _), pieces in self._tracks.items()]
        firsts += [int(steps[:, 1].min()) + shifts[core] for core, steps in self._steps.items() if len(steps)]
        return min(firsts)

    def _cuts(self) -> dict[int, int]:
        """By core, the time from which on events are left out; empty where all fit."""
        if self._spooled <= self._most:
            return {}
        totals: dict[int, int] = {}
        cores = {core for core, _, _ in self._tracks}
        for (core, _, _), pieces in self._tracks.items():
            starts, _, _ = self._read(pieces, None)
            steps = self._steps.get(core)
            edges = steps[:, 2] if steps is not None and len(steps) else np.zeros(0, np.int64)
            for nth, count in enumerate(np.searchsorted(starts, edges).tolist()):
                totals[nth] = totals.get(nth, 0) + count
        steps_of = [len(self._steps.get(core, ())) for core in cores]
        fitting = [nth for nth, total in sorted(totals.items()) if total <= self._most and nth < min(steps_of)]
        if fitting:
            last = fitting[-1]
            self.notes.append(
                f"The first {last + 1:,} of {max(steps_of):,} steps were stored: the profile has {self._spooled:,} "
                f"events, and {self._most:,} are stored."
            )
            return {core: int(self._steps[core][last, 2]) for core in cores}
        return self._cut_by_time(cores)

    def _cut_by_time(self, cores: set[int]) -> dict[int, int]:
        """Without steps that fit: an equal number of the earliest events of each track."""
        share = max(self._most // max(len(self._tracks), 1), 1)
        cuts: dict[int, int] = {}
        for (core, _, _), pieces in self._tracks.items():
            starts, _, _ = self._read(pieces, None)
            if len(starts) > share:
                cuts[core] = min(cuts.get(core, MAX_PS), int(starts[share]))
        self.notes.append(f"The earliest of {self._spooled:,} events were kept: no whole step fits {self._most:,}.")
        return {core: cuts.get(core, MAX_PS) for core in cores}

    def _kept_steps(self, core: int, cuts: Mapping[int, int]) -> NDArray[np.int64]:
        steps = self._steps.get(core, np.zeros((0, 3), np.int64))
        return steps[steps[:, 2] <= cuts[core]] if core in cuts else steps

    def _name_rows(self, programs: Mapping[str, str]) -> list[list[Any]]:
        rows = []
        for text, kind, op, program in self._names:
            program = programs.get(program, program)
            name = "" if op is None else op or text
            rows.append([text, KINDS.index(kind), f"{program}/{name}" if program and name else name])
        return rows


def _order(item: tuple[tuple[int, str, str], Any]) -> tuple[int, int, str]:
    (core, lane, name), _ = item
    return core, LANES.index(lane), name


def _aligned(file: IO[bytes]) -> int:
    at = file.tell()
    file.write(bytes(-at % 8))
    return at + -at % 8


def _write_columns(file: IO[bytes], columns: Columns, shift: int) -> int:
    offset = _aligned(file)
    starts, durations, names = columns
    file.write((starts + shift).astype("<i8").tobytes())
    file.write(durations.astype("<i8").tobytes())
    file.write(names.astype("<u4").tobytes())
    return offset
