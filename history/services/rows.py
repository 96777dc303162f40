"""One row of an import as a `Record`, or everything that is wrong with it, each as a sentence by column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite, prod
from typing import Any

from pydantic import ValidationError

from experiments.services.text import clean
from history.record import CHANGES, FAILURES, OUTCOMES, PROVENANCES, RECORD, Record, Side, outcome_of
from perfmodel.catalogue import read_model
from perfmodel.chips import get_chip, load_chips
from perfmodel.config import ROLES
from perfmodel.reading import shown, suggestion

#: What the Analyzer can name as the bottleneck, and none.
BOTTLENECKS = ("", "compute", "memory", "communication", "input", "host", "idle", "unknown")
#: KPIs that are shares of one.
SHARES = (
    "duty_cycle", "idle", "communication", "input", "hbm_utilization", "flops_utilization", "mfu", "hfu", "goodput",
)  # fmt: skip
#: A share that was summed from parts may pass one by so much.
ROUNDING = 0.001
COLUMNS = tuple(field.name for field in fields(Record))
SIDE_KEYS = tuple(field.name for field in fields(Side))
REQUIRED = ("id", "title", "changes", "source")
#: Longest texts, in characters.
LIMITS = {
    "id": 120, "title": 300, "change": 2000, "source": 500, "chip": 40, "model_name": 100, "model_family": 60,
    "measure": 100, "effect": 2000, "url": 500, "licence": 300,
}  # fmt: skip
LONGEST_ITEM = 2000
MOST_ITEMS = 50
LARGEST = 10_000_000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}")


@dataclass(frozen=True)
class Complaint:
    """What is wrong with one value and what to do.  row: as the file's own program counts; column: dotted, may be
    empty where the whole row is meant."""

    row: int
    column: str
    message: str

    def __str__(self) -> str:
        return f"row {self.row}, {self.column}: {self.message}" if self.column else f"row {self.row}: {self.message}"


@dataclass(frozen=True)
class Row:
    """One row as it was read: the record, or why it is none; warnings are about what was ignored or is unusual."""

    number: int
    record: Record | None
    errors: tuple[Complaint, ...] = ()
    warnings: tuple[Complaint, ...] = ()


def read_row(number: int, data: Any) -> Row:
    """The row from a JSON object.  Absent keys keep their default; `outcome` may be left to the speed-up."""
    if not isinstance(data, Mapping):
        return Row(number, None, (Complaint(number, "", "must be a JSON object of one record"),))
    warnings = [
        Complaint(number, clean(str(key))[:80], f"is not a known column and is ignored{suggestion(str(key), COLUMNS)}")
        for key in data
        if key not in COLUMNS
    ]
    values = _completed({key: value for key, value in data.items() if key in COLUMNS and value is not None})
    errors = [(key, "is missing; every record needs it") for key in REQUIRED if not values.get(key)]
    errors += [
        (f"{side}.{key}", f"is not a known key; the keys of a side are {', '.join(SIDE_KEYS)}")
        for side in ("before", "after")
        if isinstance(values.get(side), Mapping)
        for key in values[side]
        if key not in SIDE_KEYS
    ]
    if errors:
        return Row(number, None, _complaints(number, errors), tuple(warnings))
    try:
        record = RECORD.read(values)
    except ValidationError as error:
        return Row(number, None, _complaints(number, _sentences(error)), tuple(warnings))
    record = replace(record, before=_side(record.before), after=_side(record.after), shape=dict(record.shape))
    if errors := list(_problems(record)):
        return Row(number, None, _complaints(number, errors), tuple(warnings))
    warnings += [Complaint(number, column, text) for column, text in _oddities(record)]
    return Row(number, record, (), tuple(warnings))


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """With what follows from the other columns: both sides, the chips of a topology, the outcome of a speed-up."""
    values = {"change": "", "before": {}, "after": {}, "provenance": "imported", **values}
    speedup = values.get("speedup")
    if not values.get("outcome"):
        failed = values.get("failure")
        values["outcome"] = "failed" if failed else ""
        if not failed and isinstance(speedup, int | float) and not isinstance(speedup, bool):
            values["outcome"] = outcome_of(speedup)
    topology = values.get("topology")
    if values.get("chips") is None and isinstance(topology, list | tuple) and topology:
        sizes = [*topology, values.get("slices", 1)]
        if all(isinstance(size, int) and 0 < size <= LARGEST for size in sizes):
            values["chips"] = prod(sizes)
    return values


def _side(side: Side) -> Side:
    """Without what pydantic leaves lazily typed: plain dictionaries."""
    mesh = None if side.mesh is None else {part: dict(axes) for part, axes in side.mesh.items()}
    return replace(
        side, mesh=mesh, axis_roles=dict(side.axis_roles), training=dict(side.training), kpis=dict(side.kpis)
    )


def _complaints(number: int, problems: list[tuple[str, str]]) -> tuple[Complaint, ...]:
    return tuple(Complaint(number, clean(column)[:80], clean(message)) for column, message in problems[:20])


def _sentences(error: ValidationError) -> list[tuple[str, str]]:
    """Pydantic's complaints as ours: by column, without its own words for types."""
    wanted = {
        "string": "must be text", "int": "must be a whole number", "float": "must be a number",
        "mapping": "must be an object of keys and values", "dict": "must be an object of keys and values",
        "tuple": "must be a list", "dataclass": "must be an object of keys and values",
        "finite": "must be a finite number", "missing": "is missing; every record needs it",
    }  # fmt: skip
    sentences: dict[str, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        path = [str(part) for part in item["loc"]]
        if path[2:3] and path[1] == "kpis":  # then follow the kinds it could have been
            path, text = path[:3], "must be a number or text"
        else:
            kind = item["type"].split("_", 1)[0]
            text = wanted.get(kind, "has a wrong value")
        if not item["type"].startswith("missing"):
            text += f", not {shown(item['input'])}"
        sentences.setdefault(".".join(path), text)
    return list(sentences.items())


def _problems(record: Record) -> Iterator[tuple[str, str]]:
    """What the types do not say."""
    yield from _text_problems(record)
    for column, known in (("outcome", OUTCOMES), ("provenance", PROVENANCES)):
        if not (value := getattr(record, column)):
            yield column, f"is missing; use one of {', '.join(known)}, or give the speed-up"
        elif value not in known:
            yield column, f"is {shown(value)}; use one of {', '.join(known)}"
    for column, allowed in (("bottleneck", BOTTLENECKS), ("failure", ("", *FAILURES))):
        if (value := getattr(record, column)) not in allowed:
            yield column, f"is {shown(value)}; leave it empty or use one of {', '.join(allowed[1:])}"
    for value in record.changes:
        if value not in CHANGES:
            yield "changes", f"has {shown(value)}{suggestion(value, CHANGES)}; use {', '.join(CHANGES)}"
    if len(set(record.changes)) < len(record.changes):
        yield "changes", "contains duplicates; list each once"
    yield from _outcome_problems(record)
    for column in ("chips", "slices"):
        number = getattr(record, column)
        if number is not None and not 1 <= number <= LARGEST:
            yield column, f"is {shown(number)}; must be from 1 to {LARGEST:,}"
    if len(record.topology) > 3 or any(not 1 <= size <= LARGEST for size in record.topology):
        yield "topology", f"is {shown(record.topology)}; give one to three sizes, e.g. 16x16"
    elif record.topology and record.chips is not None and prod(record.topology) * record.slices != record.chips:
        product = prod(record.topology) * record.slices
        yield "chips", f"is {record.chips}, but topology times slices is {product}; correct one of them"
    if record.parameters is not None and not (isfinite(record.parameters) and 0 < record.parameters < 1e16):
        yield "parameters", f"is {shown(record.parameters)}; give the number of parameters, e.g. 8.03e9"
    if record.url and not re.match(r"https?://[^\s]+\Z", record.url):
        yield "url", "must begin with http:// or https:// and contain no spaces"
    yield from _shape_problems(record.shape)
    for name in ("before", "after"):
        yield from _side_problems(name, getattr(record, name))


def _text_problems(record: Record) -> Iterator[tuple[str, str]]:
    for column, limit in LIMITS.items():
        text = getattr(record, column)
        if len(text) > limit:
            yield column, f"has {len(text):,} characters; at most {limit:,}"
        if _UNSTORABLE.search(text):
            yield column, "contains an invalid character (NUL or a lone surrogate); remove it"
    for column in ("changes", "caveats"):
        items = getattr(record, column)
        if len(items) > MOST_ITEMS or any(len(item) > LONGEST_ITEM for item in items):
            yield column, f"has too many items or one that is too long; at most {MOST_ITEMS} of {LONGEST_ITEM:,} each"
        if any(_UNSTORABLE.search(item) for item in items):
            yield column, "contains an invalid character (NUL or a lone surrogate); remove it"
    if not record.id.strip():
        yield "id", "is blank; give a stable name, e.g. sweep-7-3"
    if not record.title.strip():
        yield "title", "is blank; say in a few words what was changed"


def _outcome_problems(record: Record) -> Iterator[tuple[str, str]]:
    if record.outcome == "failed":
        if not record.failure:
            yield "failure", f"is missing although the run failed; use one of {', '.join(FAILURES)}"
        if record.speedup is not None:
            yield "speedup", "is given although the run failed; leave it empty, or correct the outcome"
        return
    if record.failure:
        yield "failure", f"is given although the outcome is {shown(record.outcome)}; leave it empty, or write failed"
    speedup = record.speedup
    if speedup is None:
        return
    if not (isfinite(speedup) and 1e-4 < speedup < 1e4):
        yield "speedup", f"is {shown(speedup)}; give time per token before / after, above 1 if it got faster"
    elif record.outcome in OUTCOMES and outcome_of(speedup) != record.outcome:
        yield (
            "outcome",
            (
                f"is {record.outcome!r}, but a speed-up of {speedup:g} (time before / after) "
                f"is {outcome_of(speedup)!r}; correct one of them"
            ),
        )


def _shape_problems(shape: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not _storable(shape):
        yield (
            "shape",
            "is too large or contains values that JSON cannot represent; give layers, d_model, d_ff, heads and vocab",
        )
        return
    try:
        read_model(shape)
    except ValueError as error:
        yield "shape", str(error)[:300]


def _side_problems(name: str, side: Side) -> Iterator[tuple[str, str]]:
    if len(side.label) > 300:
        yield f"{name}.label", f"has {len(side.label):,} characters; at most 300"
    for part, axes in (side.mesh or {}).items():
        if part not in ("ici", "dcn"):
            yield f"{name}.mesh", f'has {shown(part)}; a mesh is {{"ici": {{axis: size}}, "dcn": {{axis: size}}}}'
            continue
        for axis, size in axes.items():
            if not _AXIS.fullmatch(axis):
                yield (
                    f"{name}.mesh.{part}",
                    f"has the axis {shown(axis)}; a name starts with a letter and contains letters, digits, _ and -",
                )
            elif not 1 <= size <= LARGEST:
                yield f"{name}.mesh.{part}.{axis}", f"is {shown(size)}; an axis has a size of at least 1"
            elif axis not in ROLES and side.axis_roles.get(axis) not in ROLES:
                yield f"{name}.axis_roles", f"gives no role for the axis {axis!r}; use one of {', '.join(ROLES)}"
    for key, value in side.kpis.items():
        if isinstance(value, float) and not isfinite(value):
            yield f"{name}.kpis.{key}"[:80], "is not a finite number; omit it if it was not measured"
        elif isinstance(value, float) and key in SHARES and not 0 <= value <= 1 + ROUNDING:
            what = f"write {value / 100:g}" if 1 < value <= 100 else "correct it"
            yield f"{name}.kpis.{key}", f"is {value:g}, but is a share from 0 to 1; {what}"
    for key, mapping in (("training", side.training), ("kpis", side.kpis), ("axis_roles", side.axis_roles)):
        if not _storable(mapping):
            yield (
                f"{name}.{key}",
                "is too large or contains values that JSON cannot represent; keep numbers, short texts and lists",
            )
    if _UNSTORABLE.search(side.label):
        yield f"{name}.label", "contains an invalid character (NUL or a lone surrogate); remove it"


def _storable(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_ITEM and not _UNSTORABLE.search(value)
    if isinstance(value, float):
        return isfinite(value)
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) < 10**18
    if depth > 4 or not isinstance(value, Mapping | list | tuple) or len(value) > 200:
        return False
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _storable(k) and _storable(v, depth + 1) for k, v in value.items())
    return all(_storable(item, depth + 1) for item in value)


def _oddities(record: Record) -> Iterator[tuple[str, str]]:
    if record.chip:
        try:
            get_chip(record.chip)
        except KeyError:
            hint = suggestion(record.chip, list(load_chips()))
            yield "chip", f"{shown(record.chip)} is not a chip of the performance model; kept unchanged{hint}"
    if record.speedup is not None and not record.measure:
        yield "measure", "is empty; say what the speed-up was computed from, e.g. step time"
