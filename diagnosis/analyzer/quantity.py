"""The numbers of findings as values with their source."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from diagnosis.analyzer.facts import OpFacts, keys
from diagnosis.report import SourcedValue

OPS = "op profile"


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


def share_of(
    label: str, value: float | None, formula: str, ops: Iterable[OpFacts] = (), source: str = OPS
) -> SourcedValue:
    """A share (0–1) that `formula` gives; ops: those that it was taken from.

    Ops that ran beside each other may add up to more than the whole: all of it is the most that they take.
    """
    value = None if value is None else min(value, 1.0)
    return evidence(label, value, "share", "computed", formula, source, keys(ops))


def count_of(label: str, value: float, source: str = "configuration") -> SourcedValue:
    """A number of things as `source` states it."""
    return evidence(label, float(value), "count", "measured", source=source)
