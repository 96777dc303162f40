"""Tiles of a timeline: what is drawn of each track in a stretch of time, computed for the width of a pixel.

A tile of level k covers [i · 2^k, (i + 1) · 2^k) ps in 512 bins.  Events of at least a bin are drawn one by one;
shorter ones are merged into one cell per bin, with the class that takes most of its time.  So a tile's size depends on
the number of tracks, never on the number of events.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.trace.trace import Trace

BIN_BITS = 9
BINS = 1 << BIN_BITS
#: A level's bins are whole picoseconds, and its last one holds any profile.
LEVELS = range(BIN_BITS, 61)
#: Tracks in one tile; more come in further blocks.
TRACKS_PER_BLOCK = 128
#: Of overlapping events in one track, the longest are drawn.
MOST_PER_TRACK = 4096
#: Events of at least so many bins carry their name.
NAMED_BINS = 12
CELL = 0xFFFFFFFF
#: x and width are in parts of a bin.
PARTS = 64
_HEAD = struct.Struct("<IIII")


@dataclass(frozen=True)
class Row:
    """One track in a tile: [n] starts and widths in ps from the tile's start, [n] names (CELL for merged events), [n]
    classes, [n] ps of events in it; a cell's width is its bin."""

    starts: NDArray[np.int64]
    widths: NDArray[np.int64]
    names: NDArray[np.uint32]
    classes: NDArray[np.uint8]
    time_ps: NDArray[np.int64]


def row(
    trace: Trace,
    track: int,
    level: int,
    index: int,
    classes: NDArray[np.uint8],
    only: NDArray[np.bool_] | None = None,
) -> Row:
    """What is drawn of a track.

    classes: of each name.  only: names to draw, all where None.
    """
    t0, length = index << level, 1 << level
    bin_ps = length >> BIN_BITS
    places = trace.between(track, t0, t0 + length)
    starts, durations, names = (column(track)[places] for column in (trace.starts, trace.durations, trace.name_ids))
    begin, end = np.maximum(starts, t0) - t0, np.minimum(starts + durations, t0 + length) - t0
    inside = (end > begin) | ((durations == 0) & (starts >= t0))
    if only is not None:
        inside &= only[names]
    if not inside.all():
        begin, end, names, durations = begin[inside], end[inside], names[inside], durations[inside]
    wide = durations >= bin_ps
    x, w, ids = begin[wide], (end - begin)[wide], names[wide]
    if len(x) > MOST_PER_TRACK:
        kept = np.sort(np.argpartition(-w, MOST_PER_TRACK)[:MOST_PER_TRACK])
        x, w, ids = x[kept], w[kept], ids[kept]
    cells, cell_class, cell_time = _cells(begin[~wide], (end - begin)[~wide], classes[names[~wide]], bin_ps)
    return Row(
        np.concatenate([cells * bin_ps, x]),
        np.concatenate([np.full(len(cells), bin_ps, np.int64), w]),
        np.concatenate([np.full(len(cells), CELL, np.uint32), ids]),
        np.concatenate([cell_class, classes[ids]]),
        np.concatenate([cell_time, w]),
    )


def _cells(
    begin: NDArray[np.int64], time: NDArray[np.int64], classes: NDArray[np.uint8], bin_ps: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """(bin, class that takes most of it, ps of events) of each bin that has events."""
    if not len(begin):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int64)
    kinds = int(classes.max()) + 1
    place = np.minimum(begin // bin_ps, BINS - 1)
    flat = place * kinds + classes
    # Sums of ps below 2^53 are exact as floats; a bin of merged events is far shorter.
    table = np.bincount(flat, weights=time, minlength=BINS * kinds).reshape(BINS, kinds)
    counts = np.bincount(flat, minlength=BINS * kinds).reshape(BINS, kinds)
    used = np.flatnonzero(counts.any(axis=1))
    # Events without length are represented by their number.
    decisive = np.where(table[used].any(axis=1, keepdims=True), table[used], counts[used])
    return used, decisive.argmax(axis=1).astype(np.uint8), table[used].sum(axis=1).astype(np.int64)


def pack(trace: Trace, rows: Sequence[Row], level: int) -> bytes:
    """A tile as the browser reads it, little-endian:

    uint32 rows, items, bytes of names, 0; uint32 items of each row; then of all items uint32 name (CELL: merged),
    uint16 x and uint16 width in 64ths of a bin, uint8 class, uint8 filled part of 255; last, JSON {name: text} of the
    events wide enough to be labelled.
    """
    bin_ps = 1 << (level - BIN_BITS)

    def column(values: Sequence[NDArray[np.generic]], kind: str) -> bytes:
        return np.concatenate(values).astype(kind).tobytes() if values else b""

    x = [np.minimum(part.starts * PARTS // bin_ps, BINS * PARTS - 1) for part in rows]
    ends = [np.minimum(-(-(part.starts + part.widths) * PARTS // bin_ps), BINS * PARTS) for part in rows]
    wide = [part.names[(part.names != CELL) & (part.widths >= NAMED_BINS * bin_ps)] for part in rows]
    labelled = np.unique(np.concatenate(wide)).tolist() if rows else []
    words = {str(name): trace.names[name].text[:80] for name in labelled}
    text = json.dumps(words, ensure_ascii=False, separators=(",", ":")).encode()
    items = sum(len(part.starts) for part in rows)
    fill = [np.clip(np.ceil(255 * part.time_ps / np.maximum(part.widths, 1)), 1, 255) for part in rows]
    return b"".join(
        (
            _HEAD.pack(len(rows), items, len(text), 0),
            np.array([len(part.starts) for part in rows], "<u4").tobytes(),
            column([part.names for part in rows], "<u4"),
            column(x, "<u2"),
            column([end - start for start, end in zip(x, ends, strict=True)], "<u2"),
            column([part.classes for part in rows], "u1"),
            column(fill, "u1"),
            text,
        )
    )


def tile(
    trace: Trace,
    tracks: Sequence[int],
    level: int,
    index: int,
    classes: NDArray[np.uint8],
    only: NDArray[np.bool_] | None = None,
) -> bytes:
    """The packed tile of some tracks; ValueError for a level or place that no profile has."""
    if level not in LEVELS or not 0 <= index < 1 << (61 - level):
        raise ValueError(f"There is no tile {index} of level {level}.")
    return pack(trace, [row(trace, track, level, index, classes, only) for track in tracks], level)
