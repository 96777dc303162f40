"""The records that every installation starts with: optimisations that others measured and published.

`asap.json` and `cases.json` are written by hand from their sources; `runs.json` and `optico.json` are drawn by
`evaluation.seeds.build` from the published tables in `evaluation/data/published`, `sweeps.json` by
`evaluation.history_from_sweeps` from the measured sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from history.record import CHANGES, FAILURES, NO_CHANGE, OUTCOMES, PROVENANCES, Record, Side

FOLDER = Path(__file__).parent
#: Every bottleneck the Analyzer can name, and none.
BOTTLENECKS = ("", "compute", "memory", "communication", "input", "host", "idle")

_RECORD_KEYS = {field.name for field in fields(Record)}
_SIDE_KEYS = {field.name for field in fields(Side)}
_REQUIRED = ("id", "title", "change", "changes", "before", "after", "outcome", "source", "url", "licence")
_CHOICES = {"outcome": OUTCOMES, "provenance": PROVENANCES, "failure": ("", *FAILURES), "bottleneck": BOTTLENECKS}


class SeedError(ValueError):
    """A seed file is wrong.  Our bug, not the user's; the message names the file and the record."""


@cache
def records() -> tuple[Record, ...]:
    """All seeds, those drawn from tables first.  Raises SeedError on a row that breaks a rule.

    Lists show the newest first, so what was written by hand, the paper's own case at the end, is what is seen first.
    """
    by_id: dict[str, Record] = {}
    for path in sorted(FOLDER.glob("*.json"), reverse=True):
        for row in json.loads(path.read_text(encoding="utf-8")):
            try:
                record = parse(row)
            except SeedError as error:
                raise SeedError(f"{path.name}, {row.get('id', 'a row without an id')}: {error}") from None
            if record.id in by_id:
                raise SeedError(f"{path.name}, {record.id}: this id is taken")
            by_id[record.id] = record
    return tuple(by_id.values())


def parse(row: Mapping[str, Any]) -> Record:
    """A record from its JSON object; keys that are absent keep their default.  Raises SeedError."""
    if unknown := sorted(set(row) - _RECORD_KEYS):
        raise SeedError(f"unknown key {unknown[0]!r}")
    if missing := [key for key in _REQUIRED if not row.get(key) and key not in ("before", "after")]:
        raise SeedError(f"{missing[0]} is missing")
    for key, allowed in _CHOICES.items():
        if row.get(key, allowed[0]) not in allowed:
            raise SeedError(f"{key} {row[key]!r} is none of {', '.join(filter(None, allowed))}")
    if strange := [change for change in row["changes"] if change not in CHANGES]:
        raise SeedError(f"unknown change {strange[0]!r}")
    values = dict(row)
    values |= {key: tuple(row[key]) for key in ("changes", "caveats", "topology") if key in row}
    values |= {"before": _side(row["before"]), "after": _side(row["after"])}
    record = Record(**values)
    _consistent(record)
    return record


def _side(data: Mapping[str, Any]) -> Side:
    if unknown := sorted(set(data) - _SIDE_KEYS):
        raise SeedError(f"unknown key {unknown[0]!r}")
    return Side(**data)


def _consistent(record: Record) -> None:
    if (record.outcome == "failed") != bool(record.failure):
        raise SeedError("a failed run names its failure, and only a failed run does")
    if record.speedup is None:
        if record.outcome not in ("failed", "not_timed"):
            raise SeedError(f"without a speed-up the outcome is 'not_timed', not {record.outcome!r}")
        return
    if not record.measure:
        raise SeedError("a speed-up says what it was computed from")
    low, high = 1 - NO_CHANGE, 1 + NO_CHANGE
    allowed = {
        "faster": record.speedup > high,
        "slower": 0 < record.speedup < low,
        "no_change": low <= record.speedup <= high,
        "failed": False,
        "not_timed": False,
    }
    if not allowed[record.outcome]:
        raise SeedError(f"a speed-up of {record.speedup} is not {record.outcome!r}")
