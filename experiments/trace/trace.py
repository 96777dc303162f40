"""Reads an event store by memory map."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.trace.layout import KINDS, LANES, MAGIC, OPS, Core, Name, TraceError, Track

_MOST_NAME_BYTES = 512 << 20


class Trace:
    """An event store.  cores, tracks: as they are in the file; notes: what was left out, as sentences."""

    def __init__(self, path: Path | str) -> None:
        """Raises TraceError where the file is none, FileNotFoundError where there is no file."""
        self.path = Path(path)
        self._bytes: NDArray[np.uint8] = np.memmap(self.path, np.uint8, "r")
        if len(self._bytes) < 16 or bytes(self._bytes[:8]) != MAGIC:
            raise TraceError("This file is not an event store.")
        try:
            at = int(self._bytes[8:16].view("<u8")[0])
            header: dict[str, Any] = json.loads(bytes(self._bytes[at:]))
            self.cores = tuple(Core(row["name"], row["host"], row["steps"]) for row in header["cores"])
            self._step_offsets = [int(row["offset"]) for row in header["cores"]]
            self.tracks = tuple(Track(**row) for row in header["tracks"])
            self.notes = tuple(str(note) for note in header["notes"])
            self._names = header["names"]
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError("The event store is damaged: its header cannot be read.") from error
        for track in self.tracks:
            end = track.offset + 20 * track.count
            if not (0 <= track.core < len(self.cores) and track.lane in LANES and 16 <= track.offset <= end <= at):
                raise TraceError("The event store is damaged: a track lies outside the file.")
        self._longest: dict[int, NDArray[np.int64]] = {}

    @property
    def event_count(self) -> int:
        return sum(track.count for track in self.tracks)

    @property
    def size_bytes(self) -> int:
        return len(self._bytes)

    def starts(self, track: int) -> NDArray[np.int64]:
        """[n] ps, ascending."""
        row = self.tracks[track]
        return self._bytes[row.offset : row.offset + 8 * row.count].view("<i8")

    def durations(self, track: int) -> NDArray[np.int64]:
        row = self.tracks[track]
        return self._bytes[row.offset + 8 * row.count : row.offset + 16 * row.count].view("<i8")

    def name_ids(self, track: int) -> NDArray[np.uint32]:
        """[n] indices into `names`."""
        row = self.tracks[track]
        return self._bytes[row.offset + 16 * row.count : row.offset + 20 * row.count].view("<u4")

    def between(self, track: int, t0: int, t1: int) -> slice:
        """The events that overlap [t0, t1): none before, none after; among nested ones a few that ended earlier."""
        first = int(np.searchsorted(self._ends_so_far(track), t0, side="right"))
        last = int(np.searchsorted(self.starts(track), t1, side="left"))
        return slice(first, max(first, last))

    def _ends_so_far(self, track: int) -> NDArray[np.int64]:
        ends = self._longest.get(track)
        if ends is None:
            ends = np.maximum.accumulate(self.starts(track) + self.durations(track))
            self._longest[track] = ends
        return ends

    def steps(self, core: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """([n] numbers, [n] starts, [n] ends) of a core's steps, in order of time."""
        count, offset = self.cores[core].steps, self._step_offsets[core]
        table = self._bytes[offset : offset + 24 * count].view("<i8").reshape(3, count)
        return table[0], table[1], table[2]

    @cached_property
    def step_numbers(self) -> tuple[int, ...]:
        """Numbers of the steps that any core has, in order of time."""
        first: dict[int, int] = {}
        for core in range(len(self.cores)):
            numbers, starts, _ = self.steps(core)
            for number, start in zip(numbers.tolist(), starts.tolist(), strict=True):
                first[number] = min(first.get(number, start), start)
        return tuple(sorted(first, key=lambda number: first[number]))

    @cached_property
    def span(self) -> tuple[int, int]:
        """From 0 to where the last device event, or step, ends."""
        ends = [int(self._ends_so_far(i)[-1]) for i, track in enumerate(self.tracks) if track.lane == OPS]
        ends = ends or [int(self._ends_so_far(i)[-1]) for i, _ in enumerate(self.tracks)]
        ends += [int(self.steps(core)[2].max()) for core in range(len(self.cores)) if self.cores[core].steps]
        return 0, max(ends, default=1)

    @cached_property
    def names(self) -> tuple[Name, ...]:
        at, size = int(self._names["offset"]), int(self._names["bytes"])
        unpack = zlib.decompressobj()
        try:
            text = unpack.decompress(bytes(self._bytes[at : at + size]), _MOST_NAME_BYTES)
            return tuple(Name(str(row[0]), KINDS[row[1]], str(row[2])) for row in json.loads(text))
        except (zlib.error, ValueError, IndexError, TypeError) as error:
            raise TraceError("The event store is damaged: its names cannot be read.") from error

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """[names] number of the kind of each name."""
        numbers = {kind: number for number, kind in enumerate(KINDS)}
        return np.array([numbers[name.kind] for name in self.names], np.uint8)

    def names_of_op(self, key: str) -> list[int]:
        """The names of an op's events: by its whole key, else by its name alone where the program is written
        otherwise."""
        exact = [index for index, name in enumerate(self.names) if name.op and name.op == key]
        if exact:
            return exact
        bare = key.rpartition("/")[2]
        return [index for index, name in enumerate(self.names) if name.op and name.op.rpartition("/")[2] == bare]

    def names_like(self, words: str) -> list[int]:
        """The names that hold these words, in upper or lower case."""
        wanted = words.lower().split()
        return [
            index
            for index, name in enumerate(self.names)
            if wanted and all(word in f"{name.text} {name.op}".lower() for word in wanted)
        ]

    def tracks_of(self, lanes: Sequence[str]) -> list[int]:
        return [index for index, track in enumerate(self.tracks) if track.lane in lanes]
