"""What an event store holds, and how its file is laid out.

    8 bytes    magic `ASAPTRC1`
    8 bytes    where the header stands, uint64
    columns    of each track: starts int64, durations int64, names uint32; of each core: steps int64 × 3
    names      zlib, JSON [[text, kind, op key], …]
    header     JSON: cores, tracks, notes, where the columns stand

Little-endian, columns aligned to 8 bytes.  Times are picoseconds from the first event of the profile; a name is an
index into the names, and carries its kind and the key of its op (`Op.key`, empty where it is no op).
"""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = b"ASAPTRC1"
#: 20 bytes an event: 50 million are 1 GB.
MOST_EVENTS = 50_000_000
#: Times beyond this (26 days) are damage; sums of them would overflow.
MAX_PS = 1 << 61
NAME_CHARACTERS = 300

#: Lanes of a core: ops that run, asynchronous ops from start to done, threads of the host.
OPS, ASYNC, HOST = "ops", "async", "host"
LANES = (OPS, ASYNC, HOST)
#: What an event is.  The order is that of the numbers in the file.
KINDS = ("compute", "collective", "copy", "host_transfer", "input", "output", "host", "other")


class TraceError(ValueError):
    """The file is no event store, or damaged.  The text is a sentence."""


@dataclass(frozen=True)
class Core:
    """A device core, or a host for its threads.  steps: of how many steps the boundaries are known."""

    name: str
    host: str
    steps: int = 0


@dataclass(frozen=True)
class Track:
    """A row of events: one lane of a core, or one stream or thread of it where it has several.

    core: index of its core.  lane: of LANES.  name: of the stream or thread, empty where the lane has one track.
    count: events in it.  offset: of its first column in the file.
    """

    core: int
    lane: str
    name: str
    count: int
    offset: int = 0


@dataclass(frozen=True)
class Name:
    """What an event is called: text, kind (of KINDS) and the key of its op, empty where it is no op."""

    text: str
    kind: str
    op: str = ""
