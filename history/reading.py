"""A record as a file or a person gives it: read as a `Record`, or refused with everything that is wrong, by column.

Shipped files, imports and measured proposals all pass `read_row`.  Types are checked by Pydantic, the rest here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from pydantic import ValidationError

from formatting.text import clean, clean_json
from history.record import BOTTLENECKS, CHANGES, FAILURES, OUTCOMES, PROVENANCES, RECORD, Record, Side, outcome_of
from perfmodel.catalogue import read_model
from perfmodel.chips import get_chip, load_chips
from perfmodel.config import ROLES
from perfmodel.reading import shown, suggestion

#: KPIs that are shares of one; a share that was summed from parts may pass one by ROUNDING.
SHARES = (
    "duty_cycle", "idle", "communication", "input", "hbm_utilization", "flops_utilization", "mfu", "hfu", "goodput",
)  # fmt: skip
ROUNDING = 0.001
COLUMNS = tuple(field.name for field in fields(Record))
SIDE_KEYS = tuple(field.name for field in fields(Side))
REQUIRED = ("id", "title", "changes", "source")
#: Longest texts, in characters.
LIMITS = {
    "id": 120, "title": 300, "change": 2000, "source": 500, "chip": 40, "model_name": 100, "model_family": 60,
    "measure": 100, "effect": 2000, "url": 500, "licence": 300,
}  # fmt: skip
LARGEST = 10_000_000
#: Least and greatest numbers.
RANGES = {"chips": (1, LARGEST), "slices": (1, LARGEST), "parameters": (1, 1e16), "speedup": (1e-4, 1e4)}
CHOICES = {
    "changes": CHANGES, "outcome": OUTCOMES, "provenance": PROVENANCES, "bottleneck": BOTTLENECKS,
    "failure": ("", *FAILURES),
}  # fmt: skip
#: Of any value: characters of a text, members of a list or mapping, and how deep these may nest.
LONGEST_TEXT, MAX_MEMBERS, MAX_DEPTH = 2000, 200, 6
_SIZES = re.compile(r"\s*\d{1,9}(\s*[x×,]\s*\d{1,9})*\s*")
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}")
_AXES = re.compile(rf"\s*{_AXIS.pattern}\s*=\s*\d{{1,9}}(\s*[,;]\s*{_AXIS.pattern}\s*=\s*\d{{1,9}})*\s*")


@dataclass(frozen=True)
class RowProblem:
    """One wrong value and what to do about it."""

    row: int  # as the file's own program counts
    column: str  # dotted; empty where the whole row is meant
    message: str

    def __str__(self) -> str:
        return f"row {self.row}, {self.column}: {self.message}" if self.column else f"row {self.row}: {self.message}"


@dataclass(frozen=True)
class ReadRow:
    """One row as it was read: a record, or the errors for which it is none.  Warnings do not keep it out."""

    number: int
    record: Record | None
    errors: tuple[RowProblem, ...] = ()
    warnings: tuple[RowProblem, ...] = ()


def read_row(number: int, data: Any, provenance: str = "imported") -> ReadRow:
    """Return the row read from a JSON object.

    Absent keys keep their default; `outcome` may be left to the speed-up, and lists and meshes may be written as text:
    `mesh; remat`, `16x16`, `data=8,seq=4`.
    """
    if not isinstance(data, Mapping):
        return ReadRow(number, None, (RowProblem(number, "", "must be a JSON object of one record"),))
    warnings = [
        (str(key), f"is not a known column and is ignored{suggestion(str(key), COLUMNS)}")
        for key in data
        if key not in COLUMNS
    ]
    values = {key: value for key, value in data.items() if key in COLUMNS and value is not None}
    errors = [
        (key, "is too large or too deep; keep numbers, short texts and lists")
        for key, value in values.items()
        if not _is_storable(value)
    ]
    errors += [(key, "is missing; every record needs it") for key in REQUIRED if not str(values.get(key) or "").strip()]
    errors += [
        (f"{side}.{key}", f"is not a known key; the keys of a side are {', '.join(SIDE_KEYS)}")
        for side in ("before", "after")
        if isinstance(values.get(side), Mapping)
        for key in values[side]
        if key not in SIDE_KEYS
    ]
    record = None
    if not errors:
        try:
            record = RECORD.read(_completed({"provenance": provenance, **clean_json(values)}))
        except ValidationError as error:
            errors = list(_sentences(error).items())
        else:
            errors = list(_problems(record))
            warnings += _oddities(record)
    return ReadRow(number, None if errors else record, _complaints(number, errors), _complaints(number, warnings))


def _complaints(number: int, problems: list[tuple[str, str]]) -> tuple[RowProblem, ...]:
    return tuple(RowProblem(number, clean(column)[:80], clean(message)) for column, message in problems[:20])


def _sentences(error: ValidationError) -> dict[str, str]:
    """Return Pydantic's messages by column."""
    return {
        # Behind a KPI's name follow the types that it could have been.
        ".".join(map(str, item["loc"][:3])): f"{' '.join(item['msg'].split())}, not {shown(item['input'])}"
        for item in error.errors(include_url=False, include_context=False)
    }


def _is_storable(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        few = len(value) <= 2 * MAX_MEMBERS and depth < MAX_DEPTH
        return few and all(_is_storable(item, depth + 1) for item in value)
    return not isinstance(value, int) or abs(value) < 10**18


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with text forms resolved, and what follows from others: chips of a topology, the outcome."""
    values = {"change": "", "before": {}, "after": {}, **values}
    for side in ("before", "after"):
        mesh = values[side].get("mesh") if isinstance(values[side], dict) else None
        if isinstance(mesh, str) and _AXES.fullmatch(mesh):
            sizes = {axis: int(size) for axis, size in re.findall(rf"({_AXIS.pattern})\s*=\s*(\d+)", mesh)}
            values[side] = {**values[side], "mesh": {"ici": sizes, "dcn": {}}}
    if isinstance(changes := values["changes"], str):
        values["changes"] = [item.strip() for item in re.split(r"[;,]", changes) if item.strip()]
    if isinstance(caveat := values.get("caveats"), str):
        values["caveats"] = [caveat]
    if isinstance(topology := values.get("topology"), str) and _SIZES.fullmatch(topology):
        values["topology"] = [int(size) for size in re.findall(r"\d+", topology)]
    speedup, topology = values.get("speedup"), values.get("topology")
    if not values.get("outcome"):
        is_number = isinstance(speedup, int | float) and not isinstance(speedup, bool)
        timed = outcome_of(speedup) if is_number else ""  # type: ignore[arg-type]
        values["outcome"] = "failed" if values.get("failure") else timed
    if values.get("chips") is None and isinstance(topology, list) and topology:
        factors = [*topology, values.get("slices", 1)]
        if all(isinstance(size, int) and 0 < size <= LARGEST for size in factors):
            values["chips"] = prod(factors)
    return values


def _problems(record: Record) -> Iterator[tuple[str, str]]:
    """Yield (column, sentence) for what the types do not say."""
    for column, limit in LIMITS.items():
        if (length := len(getattr(record, column))) > limit:
            yield column, f"has {length:,} characters; at most {limit:,}"
    for column, allowed in CHOICES.items():
        value = getattr(record, column)
        for each in value if isinstance(value, tuple) else [value]:
            if each not in allowed:
                hint = (
                    " or leave it empty" if "" in allowed else ", or give the speed-up" if column == "outcome" else ""
                )
                known = ", ".join(filter(None, allowed))
                yield column, f"has {shown(each)}{suggestion(each, allowed)}; use {known}{hint}"
    for column, (least, most) in RANGES.items():
        if (number := getattr(record, column)) is not None and not least <= number <= most:
            yield column, f"is {shown(number)}; must be from {least:,} to {most:,}"
    if len(set(record.changes)) < len(record.changes):
        yield "changes", "contains duplicates; list each once"
    if (record.outcome == "failed") != bool(record.failure):
        yield "failure", f"is to say why the run failed, and only then; use one of {', '.join(FAILURES)}"
    if record.speedup is not None and record.outcome != (timed := outcome_of(record.speedup)):
        speedup = f"a speed-up of {record.speedup:g} (time per token before / after)"
        yield "outcome", f"is {record.outcome!r}, but {speedup} is {timed!r}; correct one of them"
    product = prod(record.topology) * record.slices
    if len(record.topology) > 3 or any(not 1 <= size <= LARGEST for size in record.topology):
        yield "topology", f"is {shown(record.topology)}; give one to three sizes, e.g. 16x16"
    elif record.topology and record.chips not in (None, product):
        yield "chips", f"is {record.chips}, but topology times slices is {product}; correct one of them"
    if record.url and not re.match(r"https?://[^\s]+\Z", record.url):
        yield "url", "must begin with http:// or https:// and contain no spaces"
    try:
        read_model(record.shape)
    except ValueError as error:
        yield "shape", str(error)[:300]
    for name in ("before", "after"):
        yield from _side_problems(name, getattr(record, name))


def _side_problems(name: str, side: Side) -> Iterator[tuple[str, str]]:
    for part, axes in (side.mesh or {}).items():
        if part not in ("ici", "dcn"):
            yield f"{name}.mesh", f'has {shown(part)}; a mesh is {{"ici": {{axis: size}}, "dcn": {{axis: size}}}}'
            continue
        for axis, size in axes.items():
            if not _AXIS.fullmatch(axis):
                yield f"{name}.mesh.{part}", f"has the axis {shown(axis)}; use letters, digits, _ and -, a letter first"
            elif not 1 <= size <= LARGEST:
                yield f"{name}.mesh.{part}.{axis}", f"is {shown(size)}; an axis has a size of at least 1"
            elif axis not in ROLES and side.axis_roles.get(axis) not in ROLES:
                yield f"{name}.axis_roles", f"gives no role for the axis {axis!r}; use one of {', '.join(ROLES)}"
    for key, value in side.kpis.items():
        if key in SHARES and not isinstance(value, str) and not 0 <= value <= 1 + ROUNDING:
            remedy = f"write {value / 100:g}" if 1 < value <= 100 else "correct it"
            yield f"{name}.kpis.{key}", f"is {value:g}, but is a share from 0 to 1; {remedy}"


def _oddities(record: Record) -> Iterator[tuple[str, str]]:
    if record.chip:
        try:
            get_chip(record.chip)
        except KeyError:
            hint = suggestion(record.chip, list(load_chips()))
            yield "chip", f"{shown(record.chip)} is not a chip of the performance model; kept unchanged{hint}"
    if record.speedup is not None and not record.measure:
        yield "measure", "is empty; say what the speed-up was computed from, e.g. step time"
