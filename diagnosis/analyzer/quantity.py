"""Numbers as they stand in sentences: each is an `Evidence`, so that text and table cannot drift apart.

Every formatter keeps at least three significant digits, so that a number in a sentence is within 0.5 % of its value,
unless asked for fewer: a prediction is not known to three.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, isfinite, log10

from diagnosis.report import Evidence

_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_TIMES = ((1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (1e-6, 1e-6, "µs"), (0.0, 1e-9, "ns"))


def digits(value: float, significant: int = 3) -> str:
    """`value` with so many significant digits, never in exponent notation, thousands with a comma."""
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"


def format_share(value: float) -> str:
    """0–1 as percent.  Near 100 % the distance to it is what counts, so that keeps two digits."""
    percent = 100.0 * value
    if abs(percent) < 1e-6:
        return "0 %"
    if 90.0 < percent < 100.0:
        rest = 100.0 - percent
        if rest < 1e-6:
            return "100 %"
        text = f"{percent:.{max(1, min(6, 1 - floor(log10(rest))))}f}".rstrip("0")
        return f"{text}0 %" if text.endswith(".") else f"{text} %"
    return f"{digits(percent)} %"


def format_time(value: float, significant: int = 3) -> str:
    for least, unit, name in _TIMES:
        if abs(value) >= least:
            return f"{digits(value / unit, significant)} {name}"
    return f"{digits(value, significant)} s"


def format_bytes(value: float) -> str:
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{digits(value / unit)} {name}"
    return f"{digits(value)} B"


def format_value(value: float, unit: str) -> str:
    match unit:
        case "share":
            return format_share(value)
        case "s":
            return format_time(value)
        case "bytes":
            return format_bytes(value)
        case "bytes_per_s":
            return f"{format_bytes(value)}/s"
        case "flops_per_s":
            return f"{digits(value / 1e12)} TFLOP/s"
        case "count":
            return f"{value:,.0f}" if float(value).is_integer() else digits(value)
        case _:
            return digits(value)


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
        value = None  # a time of next to nothing under a rate
    text = "not measured" if value is None else format_value(value, unit)
    return Evidence(label, value, unit, origin, formula, source, tuple(ops), text)
