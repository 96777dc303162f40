"""What stands behind one number of a diagnosis: its value, rows, formula and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from django.db.models import Q, QuerySet, Sum

from diagnosis import kpi_formulas, presentation, strips
from diagnosis.models import DiagnosisRecord, OpRow
from experiments import bars, formatting
from experiments.step_profile import PROFILE

#: Rows of a panel; how many more there are is said.
MOST_ROWS = 100


@dataclass(frozen=True)
class Panel:
    """What stands behind one number: its value, rows, formula and source.

    ops: rows of the ops table, with their sum over all of them; rows: (words, number) where it rests on no ops.
    """

    title: str
    value: float | None
    unit: str
    origin: str
    formula: str = ""
    source: str = ""
    about: str = ""
    ops: list[OpRow] = field(default_factory=list)
    ops_missing: int = 0
    ops_time_s: float | None = None
    ops_share: float | None = None
    rows: list[tuple[str, str]] = field(default_factory=list)


def find(record: DiagnosisRecord, ref: str) -> Panel | None:
    """What `ref` names; None if nothing.

    `bottleneck-0`, `finding-2-1`, `saving-2`, `kpi-mfu`, `term-ici:model`, `collective-3`, `axis-model`, `step-0-3`,
    `group-module-attention`, `waiting`, `ceiling`, `confidence`.
    """
    kind, _, rest = ref.partition("-")
    finder = _FINDERS.get(kind)
    return finder(record, rest) if finder else None


def _at(items: Sequence[Any] | None, index: str) -> Any:
    return items[int(index)] if items and index.isdecimal() and len(index) < 7 and int(index) < len(items) else None


def _with_ops(found: QuerySet[OpRow], stated: int | None = None) -> dict[str, Any]:
    """The panel's rows: the largest of these ops, and the sum over all.  stated: how many there should be."""
    rows = list(found.defer("data").order_by("rank")[: MOST_ROWS + 1])
    count, shown = len(rows), rows[:MOST_ROWS]
    if count <= MOST_ROWS:
        times = [row.time_s for row in shown]
        time_s = None if None in times else sum(value or 0.0 for value in times)
        share = sum(row.time_share for row in shown)
    else:
        sums = found.order_by().aggregate(time=Sum("time_s"), share=Sum("time_share"))
        count, time_s, share = found.count(), sums["time"], sums["share"]
    missing = max(count, stated or 0) - len(shown)
    return {"ops": shown, "ops_missing": missing, "ops_time_s": time_s if shown else None, "ops_share": share}


def _keyed(record: DiagnosisRecord, keys: Sequence[str]) -> dict[str, Any]:
    wanted = list(dict.fromkeys(keys))
    return _with_ops(record.ops.filter(key__in=wanted), len(wanted)) if wanted else {}


def _from_item(
    record: DiagnosisRecord, item: Mapping[str, Any] | None, siblings: Sequence[Mapping[str, Any]] = ()
) -> Panel | None:
    """siblings: the finding's other numbers; a count of ops has no rows of its own, theirs are what was counted."""
    if not item:
        return None
    formula, source = item.get("formula", ""), item.get("source", "")
    rows = _keyed(record, item.get("ops") or ())
    if not rows and not formula:
        formula, rows = _said_elsewhere(record, item, siblings)
    return Panel(
        item.get("label", ""), item.get("value"), item.get("unit", ""), item.get("origin", ""), formula, source, **rows
    )


def _said_elsewhere(
    record: DiagnosisRecord, item: Mapping[str, Any], siblings: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """(formula, rows) of a number that carries neither: a KPI's, a count's, or where it was written down."""
    data, source = record.data, item.get("source", "")
    value, unit = item.get("value"), item.get("unit")
    tile = next((t for t in presentation.tiles(data) if t.value == value and t.unit == unit), None)
    if tile is not None and unit != "count":
        formula = kpi_formulas.formula(tile.key, data, record.run.profile.summary or {})
        more = _with_ops(record.ops.exclude(collective="")) if tile.key in kpi_formulas.OF_COLLECTIVES else {}
        return formula, more
    if source == "op profile" and unit == "count":
        counted = [key for other in siblings for key in other.get("ops") or ()]
        return "number of these ops", _keyed(record, counted) if counted else _with_ops(record.ops.all())
    return (
        f"as reported by the {source}" if source == "configuration" else f"read from: {source or 'the profile'}"
    ), {}


def _bottleneck(record: DiagnosisRecord, rest: str) -> Panel | None:
    return _from_item(record, _at(record.data.get("bottleneck", {}).get("evidence"), rest))


def _finding(record: DiagnosisRecord, rest: str) -> Panel | None:
    first, _, second = rest.partition("-")
    found = _at(record.data.get("findings"), first)
    return _from_item(record, _at(found.get("evidence"), second), found.get("evidence") or ()) if found else None


def _saving(record: DiagnosisRecord, rest: str) -> Panel | None:
    found = _at(record.data.get("findings"), rest)
    if not found or (found.get("saving_s") is None and found.get("saving_share") is None):
        return None
    in_seconds = found.get("saving_s") is not None
    keys = [key for item in found.get("evidence", ()) for key in item.get("ops") or ()]
    return Panel(
        f"upper bound saved by: {found['title']}", found["saving_s"] if in_seconds else found["saving_share"],
        "s" if in_seconds else "share", "computed",
        "Amdahl bound: the step without this time, all else unchanged.\nBounds of findings overlap and do "
        "not add up.",
        **_keyed(record, keys),
    )  # fmt: skip


def _kpi(record: DiagnosisRecord, key: str) -> Panel | None:
    data = record.data
    tile = next((tile for tile in presentation.tiles(data) if tile.key == key), None)
    if tile is None or tile.value is None:
        return None
    cited = [*data.get("bottleneck", {}).get("evidence", ())]
    cited += [item for finding in data.get("findings", ()) for item in finding.get("evidence", ())]
    same = next((e for e in cited if e.get("unit") == tile.unit and e.get("value") == tile.value), None) or {}
    more: dict[str, Any] = {}
    if same.get("ops"):
        more = _keyed(record, same["ops"])
    elif key in kpi_formulas.OF_COLLECTIVES:
        more = _with_ops(record.ops.exclude(collective=""))
    elif key in kpi_formulas.OF_ALL_OPS:
        more = _with_ops(record.ops.all())
    elif key in kpi_formulas.OF_STEPS:
        more = {"rows": _step_rows(data)}
    elif key in kpi_formulas.OF_CORES:
        more = {"rows": _core_rows(data, key)}
    formula = same.get("formula") or kpi_formulas.formula(key, data, record.run.profile.summary or {})
    return Panel(
        tile.label, tile.value, tile.unit, same.get("origin") or tile.origin, formula, same.get("source", ""),
        tile.note, **more,
    )  # fmt: skip


def _step_rows(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each step, mean over the cores shown."""
    timeline = data.get("timeline") or {}
    columns = zip(*(timeline.get("durations_s") or ()), strict=False)
    return [
        (f"step {number}, mean over {len(times)} core{'s' if len(times) != 1 else ''}", _time(sum(times) / len(times)))
        for number, times in zip(timeline.get("steps") or (), columns, strict=False)
    ][:MOST_ROWS]


def _core_rows(data: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    """What each core did per step: idle time for duty cycle and idle, own work for stragglers."""
    timeline = data.get("timeline") or {}
    parts, cores = timeline.get("parts_s") or {}, timeline.get("cores") or ()
    rows = []
    for at, core in enumerate(cores[:MOST_ROWS]):
        count = len(timeline["durations_s"][at]) or 1
        part = "compute" if key == "stragglers" else "idle"
        if part in parts:
            rows.append((f"{core}, {part} per step", _time(sum(parts[part][at]) / count)))
    return rows


def _time(value: float) -> str:
    return str(formatting.seconds(value, precise=True))


def _of_axis(record: DiagnosisRecord, axis: str) -> QuerySet[OpRow]:
    if axis == "dcn":
        return record.ops.filter(Q(mesh_axis="dcn") | Q(resource="dcn"))
    if axis in ("", "not matched"):
        return record.ops.filter(mesh_axis="").exclude(collective="")
    return record.ops.filter(mesh_axis__in=[", ".join(order) for order in permutations(bars.axes_of(axis)[:6])])


def _term(record: DiagnosisRecord, key: str) -> Panel | None:
    in_seconds = bool(record.data.get("breakdown_s"))
    parts = record.data.get("breakdown_s") or record.data.get("breakdown_share") or {}
    value = parts.get(key)
    if value is None:
        return None
    if key.startswith("ici"):
        ops = _of_axis(record, key.partition(":")[2])
    elif key in ("compute", "hbm", "dcn", "host", "other"):
        ops = record.ops.filter(resource=key)
    else:
        ops = record.ops.none()
    term = bars.term(key, value)
    if record.data.get("basis", PROFILE) != PROFILE:
        return Panel(
            f"{term.label} per step", value, "s", "predicted",
            "the performance model's part of this configuration's step × measured step time ÷ predicted step time",
            source="performance model", about="no profile was recorded, so this part was not measured",
        )  # fmt: skip
    more = _with_ops(ops)
    about = "" if more["ops"] else "no op ran: from the breakdown of the step"
    if key.startswith(("ici", "dcn")) and more["ops"]:
        about = "exposed part of these collectives, where the profile shows it"
    return Panel(
        f"{term.label} {'per step' if in_seconds else 'of the device time'}", value, "s" if in_seconds else "share",
        "computed", "sum of the self times of these ops, per step and core", about=about, **more,
    )  # fmt: skip


_COLLECTIVE_FACTS = (
    ("in flight", "in_flight_s", "s"),
    ("exposed", "exposed_s", "s"),
    ("hidden by other ops", "hidden_share", "share"),
    ("bytes per step and core", "bytes", "bytes"),
    ("times per step and core", "count", "count"),
)


def _collective(record: DiagnosisRecord, rest: str) -> Panel | None:
    row = _at(record.data.get("collectives"), rest)
    if not row:
        return None
    achieved, possible = row.get("achieved_bytes_per_s"), row.get("possible_bytes_per_s")
    about = ""
    if achieved and possible:
        about = (
            f"achieved {formatting.quantity(achieved, 'bytes_per_s')} of "
            f"{formatting.quantity(possible, 'bytes_per_s')} link bandwidth of this axis"
        )
    rows = [
        (words, str(formatting.quantity(row[key], unit)))
        for words, key, unit in _COLLECTIVE_FACTS
        if row.get(key) is not None
    ]
    in_seconds = row.get("time_s") is not None
    return Panel(
        f"{row.get('kind', 'collective')} on {presentation.axis_name(row.get('axis'))}",
        row["time_s"] if in_seconds else row.get("share"), "s" if in_seconds else "share", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh",
        about, rows=rows, **_keyed(record, row.get("ops") or ()),
    )  # fmt: skip


def _axis(record: DiagnosisRecord, axis: str) -> Panel | None:
    rows = [row for row in record.data.get("collectives") or () if presentation.axis_name(row.get("axis")) == axis]
    if not rows:
        return None
    times = [row.get("time_s") for row in rows]
    in_seconds = None not in times
    value = sum(row["time_s"] if in_seconds else row.get("share") or 0.0 for row in rows)
    exposed = [row["exposed_s"] for row in rows if row.get("exposed_s") is not None]
    about = f"{formatting.seconds(sum(exposed))} of it exposed" if exposed else ""
    return Panel(
        f"collectives on {axis}", value, "s" if in_seconds else "share", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh", about,
        **_keyed(record, [key for row in rows for key in row.get("ops") or ()]),
    )  # fmt: skip


def _waiting(record: DiagnosisRecord, rest: str) -> Panel | None:
    value = presentation.waiting_share(record.data)
    if rest or not value:
        return None
    done = record.ops.exclude(collective="").filter(Q(name__icontains="done") | Q(category__icontains="done"))
    return Panel(
        "waiting for asynchronous collectives", value, "share", "measured",
        "self time of the -done ops of collectives ÷ step time", **_with_ops(done),
    )  # fmt: skip


def _step(record: DiagnosisRecord, rest: str) -> Panel | None:
    core, _, step = rest.partition("-")
    if not (core.isdecimal() and step.isdecimal() and len(core) < 7 and len(step) < 7):
        return None
    try:
        title, duration, parts = strips.step_parts(record.data.get("timeline"), int(core), int(step))
    except LookupError:
        return None
    whole = duration or 1.0
    rows = [(words, f"{_time(value)}, {formatting.share(value / whole)}") for words, value in parts]
    return Panel(title, duration, "s", "measured", "exclusive parts of this step on this core", rows=rows)


def _group(record: DiagnosisRecord, rest: str) -> Panel | None:
    column, _, value = rest.partition("-")
    if column not in ("module", "category", "source", "bound_by", "family"):
        return None
    lookup = "data__family" if column == "family" else column
    found = record.ops.filter(**{lookup: value})
    more = _with_ops(found)
    if not more["ops"]:
        return None
    return Panel(
        f"{column.replace('_', ' ')} {value or 'unattributed'}", more["ops_share"], "share", "measured",
        "sum of the shares of these ops, of the device time", **more,
    )  # fmt: skip


def _ceiling(record: DiagnosisRecord, rest: str) -> Panel | None:
    found = presentation.ceiling(record.data)
    if found is None or rest:
        return None
    terms = bars.step_terms(record.data.get("breakdown_s") or {})
    return Panel(
        f"step: {found.label[0].lower()}{found.label[1:]}", found.time_s, "s", "computed",
        "step time − this term, all else unchanged (Amdahl)", rows=[(term.label, _time(term.value)) for term in terms],
    )  # fmt: skip


def _confidence(record: DiagnosisRecord, rest: str) -> Panel | None:
    verdict = record.data.get("bottleneck") or {}
    if rest or verdict.get("confidence") is None:
        return None
    if record.data.get("basis", PROFILE) != PROFILE:
        return Panel(
            f"confidence that {verdict['primary']} is the bottleneck", verdict["confidence"], "share", "predicted",
            "probability that the predicted parts are in this order, each known to a factor of 1.6 (one standard "
            "deviation), shrunk towards one half by the part of the step the model does not explain; at most 75 %",
            about="an assumption, not a calibrated probability",
        )  # fmt: skip
    return Panel(
        f"confidence that {verdict['primary']} is the bottleneck", verdict["confidence"], "share", "computed",
        "quality of the data × (0.55 + 0.45 × margin), at most 97 %\nquality: complete roofline, sample of ops, "
        "categories only, no steps; margin: of the best explanation over the next",
        about="a ranking score, not a calibrated probability",
    )  # fmt: skip


_FINDERS = {
    "bottleneck": _bottleneck, "finding": _finding, "saving": _saving, "kpi": _kpi, "term": _term,
    "collective": _collective, "axis": _axis, "step": _step, "group": _group, "ceiling": _ceiling,
    "confidence": _confidence, "waiting": _waiting,
}  # fmt: skip
