"""A log as blocks of whole lines, in bounded memory, and what stands before the message of a line.

Logs are bytes of unknown origin: NUL bytes go (UTF-16 becomes readable by it), escape sequences go, what is no UTF-8 is
replaced, and a line longer than `LONGEST` is read in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 1 << 20
#: Bytes of one line that are looked at together.
LONGEST = 1 << 12

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[@-Z\\-_])")

#: What launchers, loggers and clocks write before a message; each is taken off as long as one matches.
_PREFIX = re.compile(
    r"""\s*(?:
      \[(?:default|rank|Rank\ )?\d+\]:?                        # torchrun, PyTorch
    | \[\d+,\d+\]<std(?:out|err)>:                             # mpirun
    | \d{1,5}:(?=\s)                                           # srun --label
    | \d+:\s                                                   # mpirun -tag-output
    | \([\w().:\- ]{1,60}\ ?pid=\d+[^)]{0,60}\)                # Ray
    | \(?\[?\d{4}[-/]\d{2}[-/]\d{2}[T_ ]\d{2}:\d{2}:\d{2}[.,\d]*(?:Z|[+-]\d{2}:?\d{2})?\]?\)?:?  # dates
    | \[?[IWEF]\d{3,4}\ \d{2}:\d{2}:\d{2}[.\d]*\s+(?:\d+\s+)?[\w./\-]+:\d+\]                      # glog
    | \d{2}:\d{2}:\d{2}[.,\d]*\s                               # times
    | \[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|stderr|stdout)\b\]?\s*[:|\-]?(?=\s|\d|$)
    | [IWEF]\s+[\w./\-]+:\d+\]                                 # XLA after its date
    | \d{1,3}(?:\.\d{1,3}){3}\s+\[\d+\]                        # TPU pods: address [worker]
    | [|\-–]\s
    )\s*""",
    re.VERBOSE,
)
_RANK = re.compile(
    r"\[(?:default|rank|Rank )(\d+)\]|^\s*(\d{1,5}):\s|\[\d+,(\d+)\]<std|\bRank (\d+)\b|actor_train-(\d+)|\btask:(\d+)"
)
_TIME = re.compile(
    rb"(\d{4})[-/](\d{2})[-/](\d{2})[T_ ](\d{2}:\d{2}:\d{2}(?:[.,]\d{1,6})?)"
    rb"|\b[IWEF](\d{2})(\d{2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)"
)


@dataclass(frozen=True)
class Block:
    """Whole lines, or a piece of a long one.  number: of its first line, from 1."""

    text: bytes
    number: int


def blocks(stream: BinaryIO) -> Iterator[Block]:
    """The log in pieces of about `BLOCK` bytes that end with a line, escape sequences and NUL bytes taken out."""
    left, number = b"", 1
    while piece := stream.read(BLOCK):
        text = _clean(left + piece)
        cut = text.rfind(b"\n") + 1
        if not cut and len(text) >= BLOCK:
            # A piece of one line; its last bytes come again with the next, so that no message is cut in two.
            yield Block(text, number)
            left = text[-LONGEST // 2 :]
            continue
        whole, left = text[:cut], text[cut:]
        if whole:
            yield Block(whole, number)
            number += whole.count(b"\n")
    if left:
        yield Block(_clean(left), number)


def _clean(raw: bytes) -> bytes:
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")
    return _ESCAPES.sub(b"", raw) if b"\x1b" in raw else raw


def line_at(text: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line around a byte; progress bars end a line with a carriage return alone."""
    low, high = max(0, at - LONGEST // 2), min(len(text), at + LONGEST // 2)
    start = max(text.rfind(b"\n", low, at), text.rfind(b"\r", low, at)) + 1 or low
    end = text.find(b"\n", at, high)
    return start, high if end < 0 else end


def message(line: str) -> str:
    """The line less its dates, ranks, levels and places in the source."""
    while (prefix := _PREFIX.match(line)) and prefix.end():
        line = line[prefix.end() :]
    return line.strip()


def rank_of(line: str) -> int | None:
    """The rank that a line says it comes from."""
    match = _RANK.search(line)
    return int(next(group for group in match.groups() if group)[:9]) if match else None


def time_before(text: bytes, at: int) -> tuple[str, str] | None:
    """The last time stamp up to the end of the line at a byte: whether it has a year, and a text that sorts by time."""
    stamp = None
    for stamp in _TIME.finditer(text, max(0, at - 2 * LONGEST), at):  # noqa: B007
        pass
    if stamp is None:
        return None
    year, month, day, clock, month2, day2, clock2 = (group.decode() if group else "" for group in stamp.groups())
    return ("year", f"{year}{month}{day} {clock}") if year else ("no year", f"{month2}{day2} {clock2}")
