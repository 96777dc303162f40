"""The numbers of findings as `Evidence`, and numbers as plain text, formatted as on pages (formatting)."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import formatting
from diagnosis.report import Evidence


def format_time(value: float, origin: str = "") -> str:
    return format_value(value, "s", origin)


def format_bytes(value: float) -> str:
    return format_value(value, "bytes")


def format_value(value: float, unit: str, origin: str = "") -> str:
    return str(formatting.by_origin(value, unit, origin)).replace(formatting.NBSP, " ")


def evidence(
    label: str,
    value: float | None,
    unit: str,
    origin: str = "computed",
    formula: str = "",
    source: str = "",
    ops: Iterable[str] = (),
) -> Evidence:
    """One number with its origin, shown in a sentence or beside it."""
    if value is not None and not isfinite(value):
        value = None  # a time near zero under a rate
    return Evidence(label, value, unit, origin, formula, source, tuple(ops))
