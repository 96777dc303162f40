"""Writes the seeds that are drawn from published tables: `python -m evaluation.seeds.build` (or `make seeds`).

The files are the same for the same tables; a test compares them with what this program writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

from evaluation.seeds import optico, published_records
from history.record import Record
from history.seeds import FOLDER


def built() -> dict[str, str]:
    """File name → text."""
    return {"optico.json": as_text(optico.tuning_steps()), "runs.json": as_text(published_records.records())}


def as_text(records: Iterable[Record]) -> str:
    """A JSON list with one record per line, without the keys that have their default."""
    lines = [json.dumps(_without_defaults(record), ensure_ascii=False) for record in records]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _without_defaults(value: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for field in fields(value):
        content = getattr(value, field.name)
        default = field.default if field.default is not MISSING else None
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if content != default:
            kept[field.name] = _without_defaults(content) if field.name in ("before", "after") else content
    return kept


if __name__ == "__main__":
    for name, text in built().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
