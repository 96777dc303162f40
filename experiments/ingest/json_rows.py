"""One row of an op table or one set of KPIs in JSON, whatever its keys are called → our names and SI units.

Keys are compared in lower case with everything else as `_`: `"% of Total Time"` is `percent_of_total_time`, and
`"Total Time (ps)"` is `total_time_ps`.  A unit at the end of a key or of a text (`"11.02%"`, `"2516.5 ms"`) counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.values import GIB, number

SECONDS = {
    "ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0,
    "picoseconds": 1e-12, "nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3,
}  # fmt: skip
_UNIT_KEY = re.compile(rf"^(.+?)(?:_in)?_({'|'.join(sorted(SECONDS, key=len, reverse=True))})$")
_NUMBER_WITH_UNIT = re.compile(r"^\s*([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*(%|ps|ns|us|µs|μs|ms|s)?\s*$")
_CAMEL = re.compile(r"[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+")

#: Our field ← keys of XProf's tables, of its command line, and of the reports that the paper's agents read.
TEXTS = {
    "name": ("name", "operation", "hlo_op_name", "hlo_name", "op"),
    "category": ("category", "hlo_category", "hlo_op_category", "op_category"),
    "bound_by": ("bound_by", "bottleneck", "bound"),
    "hlo": ("hlo_op_expression", "hlo_expression", "hlo_text", "expression", "long_name", "hlo"),
    "op_name": ("tf_op_name", "framework_op_name", "provenance", "op_name"),
    "program": ("program_id", "hlo_module_id", "program", "module"),
}
TIMES = {
    "self_time_s": ("total_self_time", "self_time"),
    "total_time_s": ("total_time",),
    "avg_time_s": ("avg_time", "average_time"),
    "avg_self_time_s": ("avg_self_time",),
}
SHARES = {
    "time_share": (
        "time_share",
        "percent_of_total_time",
        "total_self_time_percent",
        "self_time_percent",
        "total_time_percent",
        "percent_time",
        "time_percent",
        "total_time_in_percentage",
        "total_self_time_in_percentage",
        "time_in_percentage",
        "total_self_time_as_fraction",
        "time_fraction",
    ),
    "roofline_efficiency": ("roofline_efficiency", "roofline_efficiency_percent"),
    "compute_efficiency": ("compute_efficiency", "compute_efficiency_percent", "flop_rate_relative_to_hw_limit"),
    "memory_bandwidth_utilization": (
        "max_mem_bw_utilization",
        "max_mem_bw_utilization_percent",
        "memory_bandwidth_utilization",
        "memory_bw_relative_to_hw_limit",
    ),
}
#: (keys, factor to SI)
NUMBERS: dict[str, tuple[tuple[str, ...], float]] = {
    "occurrences": (("occurrences", "num_occurrences", "count"), 1.0),
    "flops": (("flops", "flops_v2", "total_flops"), 1.0),
    "bytes_accessed": (("bytes_accessed",), 1.0),
    "flops_per_s": (
        ("model_flop_rate", "model_flop_rate_gflops", "measured_flop_rate", "measured_flop_rate_gflops"),
        1e9,
    ),
    "hbm_bytes_per_s": (("hbm_bw", "hbm_bw_gibs"), GIB),
    "operational_intensity": (("operational_intensity", "operational_intensity_flop_per_byte"), 1.0),
}


def key_of(name: Any) -> str:
    """`"% of Total Time"` → `percent_of_total_time`, `"totalTimePs"` → `total_time_ps`."""
    spelled = str(name)[:200]
    if _CAMEL.fullmatch(spelled):
        spelled = re.sub(r"(?=[A-Z])", "_", spelled)
    spelled = spelled.lower().replace("%", " percent ").replace("#", " ").replace("µ", "u").replace("μ", "u")
    return re.sub(r"[^a-z0-9]+", "_", spelled).strip("_")


def normalized(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The row with our spelling of keys; groups inside it (`"Roofline Analysis": {…}`) are laid flat, one level."""
    flat = {key_of(key): value for key, value in row.items()}
    for group in [value for value in flat.values() if isinstance(value, dict)]:
        for key, value in group.items():
            flat.setdefault(key_of(key), value)
    return flat


def is_op(row: Mapping[str, Any]) -> bool:
    """Whether a normalised row names an op and says anything about its time or its place on the roofline."""
    op_columns = {key for keys in SHARES.values() for key in keys} | {key for keys in TIMES.values() for key in keys}
    op_columns |= {*TEXTS["category"], *TEXTS["bound_by"], "occurrences"}
    return any(key in row for key in TEXTS["name"]) and any(
        key in op_columns or ((match := _UNIT_KEY.match(key)) and match.group(1) in op_columns) for key in row
    )


def wrong(file: str, where: str, value: Any, expected: str) -> IngestError:
    shown = repr(value)
    return IngestError(
        f"{file}: {where} is {shown if len(shown) <= 60 else shown[:57] + '…'}; {expected} was expected.",
        "Export the tables again from XProf.",
        file,
    )


def quantity(value: Any, file: str, where: str) -> tuple[float, str] | None:
    """(number, its unit or ``), None where absent (`null`, `N/A`, ``); IngestError for anything but a number."""
    if value is None or (
        isinstance(value, str) and value.strip().lower() in ("", "n/a", "none", "null", "unknown", "-")
    ):
        return None
    if isinstance(value, str):
        match = _NUMBER_WITH_UNIT.match(value[:100])
        if match:
            value_read = number(match.group(1).replace(",", ""))
            if value_read is not None:
                return value_read, (match.group(2) or "").replace("µ", "u").replace("μ", "u")
    else:
        value_read = number(value)
        if value_read is not None:
            return value_read, ""
    raise wrong(file, where, value, "a number")


def at_least_zero(value: Any, file: str, where: str) -> tuple[float, str] | None:
    value_and_unit = quantity(value, file, where)
    if value_and_unit is not None and value_and_unit[0] < 0:
        raise wrong(file, where, value, "a number of at least 0")
    return value_and_unit


def time_s(row: Mapping[str, Any], names: Iterable[str], file: str, where: str, bare_unit: str = "") -> float | None:
    """A time in seconds from `<name>_<unit>` or from `<name>` with a unit in its text (or bare_unit)."""
    wanted = set(names)
    for key, value in row.items():
        match = _UNIT_KEY.match(key)
        if match and match.group(1) in wanted:
            value_and_unit = at_least_zero(value, file, f"{where}{key}")
            if value_and_unit is not None:
                return value_and_unit[0] * SECONDS[match.group(2)]
    for key in names:
        if key in row:
            value_and_unit = at_least_zero(row[key], file, f"{where}{key}")
            if value_and_unit is None:
                continue
            unit = value_and_unit[1] or bare_unit
            if unit not in SECONDS:
                raise wrong(file, f"{where}{key}", row[key], "a time with its unit, as in total_time_us,")
            return value_and_unit[0] * SECONDS[unit]
    return None


def shares(rows: list[dict[str, Any]], field: str, file: str, scale: str = "") -> list[float | None]:
    """One share, 0–1, per row; an efficiency may exceed 1, where the cost model counts more than was done.

    A `%` in the text or `percent` in the key means 0–100.  A bare number is read by its column: XProf's roofline states
    0–1 (also where it calls the column `…_in_percentage`), its other tables 0–100, so a column is in percent as a whole
    if it holds a value above 1.5, or if it is of time and more than all of it would be listed otherwise.  scale:
    `fraction` where the table is known to state 0–1.
    """
    keys = SHARES[field]
    raw: list[tuple[float, bool | None] | None] = []
    for index, row in enumerate(rows):
        share_and_unit: tuple[float, bool | None] | None = None
        for key in keys:
            if key in row and share_and_unit is None:
                value = at_least_zero(row[key], file, f"op {index + 1}, {key}")
                if value is not None:
                    # A row of XProf's roofline holds both, and both as fractions.
                    fraction = key.endswith("in_percentage") or "total_time_in_percentage" in row
                    stated = value[1] == "%" or ("percent" in key and not (fraction and field == "time_share"))
                    known = True if stated else None
                    share_and_unit = (value[0], known)
        raw.append(share_and_unit)
    bare = [entry[0] for entry in raw if entry is not None and entry[1] is None]
    in_percent = any(value > 1.5 for value in bare) or (field == "time_share" and sum(bare) > 1.1)
    in_percent = in_percent and scale != "fraction"
    result: list[float | None] = []
    for index, entry in enumerate(raw):
        if entry is None:
            result.append(None)
            continue
        share = entry[0] / 100 if entry[1] or (entry[1] is None and in_percent) else entry[0]
        if field == "time_share":
            if share > 1.02:
                raise wrong(file, f"op {index + 1}, {keys[0]}", entry[0], "a share of at most 100 %")
            share = min(share, 1.0)
        result.append(share)
    return result


#: A step of one core: its number, core, host, seconds and parts.
CoreStep = tuple[int, str, str, float, dict[str, float]]


@dataclass
class Piece:
    """One part of an export.  tool: XProf's name of it.  ops: normalised rows; scale: `fraction` where its percent
    columns are 0–1 (XProf's roofline), bare_unit: of times without one.  complete: whether all ops are in it.
    planned_bytes: of a program's buffer assignment, heap: XProf's view of it.
    """

    tool: str
    file: str
    kpis: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    ops: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    complete: bool | None = None
    dropped: int | None = None
    bare_unit: str = ""
    scale: str = ""
    allocators: dict[str, Any] = field(default_factory=dict)
    planned_bytes: float | None = None
    heap: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    core_steps: list[CoreStep] = field(default_factory=list)
