"""The records that every installation starts with: optimisations that others measured and published.

`asap.json` and `cases.json` are written by hand from their sources; `runs.json` and `optico.json` are drawn by
`evaluation.seeds.build` from the published tables in `evaluation/data/published`, `sweeps.json` by
`evaluation.history_from_sweeps` from the measured sweeps.  `trials.json` was extracted from the pages that it links to.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from history.reading import read_row
from history.record import Record

FOLDER = Path(__file__).parent


class SeedError(ValueError):
    """A seed file is wrong.  Our bug, not the user's; the message names the file and the record."""


@cache
def records() -> tuple[Record, ...]:
    """Return all seeds, those drawn from tables first.  Raises SeedError on a row that breaks a rule of imports.

    Lists show the newest first, so what was written by hand, the paper's own case at the end, is what is seen first.
    """
    by_id: dict[str, Record] = {}
    for path in sorted(FOLDER.glob("*.json"), reverse=True):
        for number, data in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
            row = read_row(number, data, "published")
            if row.record is None or row.warnings:
                raise SeedError(f"{path.name}, {(*row.errors, *row.warnings)[0]}")
            if row.record.id in by_id:
                raise SeedError(f"{path.name}, {row.record.id}: this id is taken")
            by_id[row.record.id] = row.record
    return tuple(by_id.values())
