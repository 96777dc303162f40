"""Numbers in sentences: each is an `Evidence`, so that text and table cannot drift apart.

They are formatted as on pages (experiments.formatting), with plain spaces: three significant digits, two where a number
is predicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from diagnosis.report import Evidence
from experiments import formatting


def digits(value: float, significant: int = 3) -> str:
    """`value` with so many significant digits, never in exponent notation, thousands with a comma."""
    return formatting.significant(value, significant)


def format_share(value: float) -> str:
    return format_value(value, "share")


def format_time(value: float, significant: int = 3) -> str:
    return format_value(value, "s", significant)


def format_bytes(value: float) -> str:
    return format_value(value, "bytes")


def format_value(value: float, unit: str, significant: int = 3) -> str:
    return str(formatting.quantity(value, unit, significant)).replace(formatting.NBSP, " ")


def evidence(
    label: str,
    value: float | None,
    unit: str,
    origin: str = "computed",
    formula: str = "",
    source: str = "",
    ops: Iterable[str] = (),
) -> Evidence:
    """One number with its origin; `str()` of it is the number as a sentence prints it."""
    if value is not None and not isfinite(value):
        value = None  # a time near zero under a rate
    text = "not measured" if value is None else format_value(value, unit)
    return Evidence(label, value, unit, origin, formula, source, tuple(ops), text)
