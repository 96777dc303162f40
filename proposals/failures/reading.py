"""The first error of a log, of many ranks or files, and what it says: see `signatures.toml` for the messages.

The earliest primary error is the cause: what other ranks report of it (time-outs, closed connections) and what
launchers report of ended processes counts only where there is none.  A log is read in blocks; only lines that contain a
piece of a known message are looked at closer.  What is quoted of a log is stored and shown: credentials are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import BinaryIO

from agent.provider.credentials import without_credentials
from perfmodel.config import ExperimentConfig
from proposals.failures.failure import Failure, Hit, Values
from proposals.failures.lines import LONGEST, Block, blocks, line_at, message, rank_of, time_before
from proposals.failures.naming import explained
from proposals.failures.signatures import Signature, needles, table

#: Characters of a line that are quoted, and of the lines below it in which values are looked for.
QUOTED, BELOW = 300, 4_096
#: Lines shown where nothing is known, and bytes at the end of a log in which they are looked for.
LAST, END = 3, 8_192
#: Lines with the same piece of text that are looked at: who writes more of them without a cause writes none.
LOOKS = 500

_STAGES = ("primary", "symptom", "echo", "notice")
_BYTES = re.compile(r"([\d.]+)\s?([KMGTP]?)i?B?(?:ytes)?\b", re.IGNORECASE)
_WHOLE = ("dimension", "divisor", "times", "exit_code")
#: Groups of patterns in milliseconds.
_MILLISECONDS = ("timeout_ms", "wait_ms")
_SIZES = ("requested", "free", "capacity", "used", "others")


@dataclass(frozen=True)
class _Read:
    """What one file came to: the earliest hit of each stage, its lines, and its last lines."""

    hits: dict[str, Hit]
    lines: int
    last: tuple[str, ...]


def read_failure(logs: BinaryIO | Sequence[tuple[str, BinaryIO]], config: ExperimentConfig | None = None) -> Failure:
    """The cause of a failed run from its log, or from several (name, log), such as one for each rank.

    config: of the run, for the responsible parameters and what is forbidden.  Memory: a few MB, whatever the length.
    Several files are put in order by their time stamps where all of them have some, else as given.
    """
    named = list(logs) if isinstance(logs, Sequence) else [("", logs)]
    read = [_read(stream, name) for name, stream in named]
    lines = sum(item.lines for item in read)
    for stage in _STAGES:
        if hits := [item.hits[stage] for item in read if stage in item.hits]:
            return explained(_earliest_hit(hits), lines, config)
    return explained(None, lines, config, last=next((item.last for item in read if item.last), ()))


def _earliest_hit(hits: list[Hit]) -> Hit:
    clocks = {hit.time[0] if hit.time else None for hit in hits}
    return min(hits, key=lambda hit: hit.time[1] if hit.time else "") if len(clocks) == 1 else hits[0]


def _read(stream: BinaryIO, name: str) -> _Read:
    hits: dict[str, Hit] = {}
    looks = dict.fromkeys(needles(), LOOKS)
    lines, end = 0, b""
    for block in blocks(stream):
        if "primary" not in hits:
            for hit in _hits(block, {stage for stage in _STAGES if stage not in hits}, looks, name):
                hits.setdefault(hit.signature.stage, hit)
                if "primary" in hits:
                    break
        breaks = block.text.count(b"\n")
        lines = block.number - 1 + breaks + (not block.text.endswith(b"\n"))
        end = (end + block.text)[-END:]
    said = without_credentials(end.decode("utf-8", "replace")).splitlines()
    last = [line for raw in said if (line := _quoted(message(raw)))]
    return _Read(hits, lines, tuple(last[-LAST:]))


def _hits(block: Block, stages: set[str], looks: dict[bytes, int], name: str) -> Iterator[Hit]:
    """The lines of known messages in a block, in their order.  looks: left for each piece of text."""
    lower = block.text.lower()
    places: set[tuple[int, int]] = set()
    for needle, signatures in needles().items():
        at = 0
        wanted = any(signature.stage in stages for signature in signatures)
        while wanted and looks[needle] and (at := lower.find(needle, at)) >= 0:
            place = line_at(lower, at)
            places.add(place)
            at = place[1]
            looks[needle] -= 1
    for start, end in sorted(places):
        raw = block.text[start:end].decode("utf-8", "replace").replace("\r", " ")
        text = without_credentials(message(raw))
        # The table's order decides between messages, also where an earlier one is of a stage that is known already.
        claims, match = _claim(text)
        if claims is None or match is None or claims.stage not in stages:
            continue
        below = block.text[end : end + BELOW].decode("utf-8", "replace")
        number = block.number + block.text.count(b"\n", 0, start)
        values = _values(claims, text, below, match.start())
        yield Hit(
            claims, _quoted(text, match.start()), number, rank_of(raw), values, time_before(block.text, end), name
        )


def _claim(line: str) -> tuple[Signature, re.Match[str]] | tuple[None, None]:
    """The first signature of the table that matches a line."""
    lower = line.lower()
    for signature in table().signature:
        if any(needle in lower for needle in signature.needles) and (match := signature.pattern.search(line)):
            return signature, match
    return None, None


def _quoted(line: str, at: int = 0) -> str:
    """At most `QUOTED` printable characters of a line, around a place in it."""
    start = max(0, at - QUOTED // 3) if len(line) > QUOTED else 0
    text = "".join(sign if sign.isprintable() else " " for sign in line[start : start + QUOTED + 2])
    text = ("…" if start else "") + " ".join(text.split())
    return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"


def _values(signature: Signature, line: str, below: str, at: int) -> Values:
    """The first value of each name; what other processes hold is added up."""
    values: dict[str, object] = {}
    text = f"{line[max(0, at - LONGEST // 2) :][:LONGEST]}\n{below}"
    for pattern in (signature.pattern, *signature.more):
        for match in pattern.finditer(text):
            for name, raw in match.groupdict().items():
                value = _value(name, raw) if raw else None
                if value is None:
                    continue
                name = "timeout_s" if name in _MILLISECONDS else name
                if name == "others" and isinstance(value, float):
                    values[name] = float(values.get(name, 0.0)) + value  # type: ignore[arg-type]
                else:
                    values.setdefault(name, value)
            if not match.groupdict().get("others"):
                break
    if isinstance(values.get("divisor"), int) and isinstance(times := values.get("times"), int):
        values["divisor"] = values["divisor"] * times  # type: ignore[operator]
    return Values(**{item.name: values.get(item.name) for item in fields(Values)})  # type: ignore[arg-type]


def _value(name: str, raw: str) -> object | None:
    if name in _SIZES:
        return _size(raw)
    if name in _WHOLE:
        return int(raw) if len(raw) < 16 else None
    if name in _MILLISECONDS:
        return int(raw[:12]) / 1e3
    return float(raw[:12]) if name == "timeout_s" else _quoted(without_credentials(raw[:80]))


def _size(raw: str) -> float | None:
    """Bytes.  All of these programs count in powers of 1024, whether they write G, GB or GiB."""
    match = _BYTES.match(raw.strip())
    try:
        value = float(match[1]) * 1024.0 ** " KMGTP".index(match[2].upper() or " ") if match else None
    except ValueError:
        return None
    return value if value is not None and isfinite(value) else None
