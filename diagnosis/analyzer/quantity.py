"""The numbers of findings as values with their source."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from diagnosis.report import SourcedValue


def evidence(
    label: str,
    value: float | None,
    unit: str,
    origin: str = "computed",
    formula: str = "",
    source: str = "",
    ops: Iterable[str] = (),
) -> SourcedValue:
    """One number with its origin, shown in a sentence or beside it."""
    if value is not None and not isfinite(value):
        value = None  # a time near zero under a rate
    return SourcedValue(label, value, unit, origin, formula, source, tuple(ops))
