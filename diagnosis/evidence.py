"""Evidence of one number of a diagnosis: value, rows, formula and source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from django.db.models import Q, QuerySet, Sum

import formatting
from diagnosis import presentation
from diagnosis.models import DiagnosisRecord, OpRow
from diagnosis.report import AxisCollective, Finding, SourcedValue
from experiments import bars, glossary
from experiments.step_profile import Timeline
from formatting.numbers import whole_number

#: Rows of a panel; how many more there are is said.
MOST_ROWS = 100


@dataclass(frozen=True)
class Panel:
    """Evidence of one number: value, rows, formula and source.

    ops: rows of the ops table, with their sum over all of them; rows: (words, number) if it has no ops.
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

    `bottleneck-0`, `finding-2-1`, `saving-2`, `kpi-mfu`, `term-ici:model`, `collective-3`, `axis-model`,
    `group-module-attention`, `op-1-time_share`, `listed`, `waiting`, `ceiling`, `confidence`.
    """
    kind, _, rest = ref.partition("-")
    finder = _FINDERS.get(kind)
    return finder(record, rest) if finder else None


def _item_at(items: Sequence[Any] | None, index: str) -> Any:
    return items[place] if items and (place := whole_number(index)) is not None and place < len(items) else None


def _with_ops(ops: QuerySet[OpRow], stated: int | None = None) -> dict[str, Any]:
    """The panel's rows: the largest of these ops, and the sum over all.  stated: how many there should be."""
    rows = list(ops.defer("data").order_by("rank")[: MOST_ROWS + 1])
    count, shown = len(rows), rows[:MOST_ROWS]
    if count <= MOST_ROWS:
        times = [row.time_s for row in shown]
        time_s = None if None in times else sum(value or 0.0 for value in times)
        share = sum(row.time_share for row in shown)
    else:
        sums = ops.order_by().aggregate(time=Sum("time_s"), share=Sum("time_share"))
        count, time_s, share = ops.count(), sums["time"], sums["share"]
    missing = max(count, stated or 0) - len(shown)
    return {"ops": shown, "ops_missing": missing, "ops_time_s": time_s if shown else None, "ops_share": share}


def _keyed(record: DiagnosisRecord, keys: Sequence[str]) -> dict[str, Any]:
    wanted = list(dict.fromkeys(keys))
    return _with_ops(record.ops.filter(key__in=wanted), len(wanted)) if wanted else {}


def _from_item(
    record: DiagnosisRecord, item: SourcedValue | None, siblings: Sequence[SourcedValue] = ()
) -> Panel | None:
    """siblings: the finding's other numbers; a count of ops has no rows of its own, theirs are what was counted."""
    if item is None:
        return None
    formula = item.formula
    rows = _keyed(record, item.ops)
    if not rows and not formula:
        formula, rows = _read(record, item, siblings)
    return Panel(item.label, item.value, item.unit, item.origin, formula, item.source, **rows)


def _read(record: DiagnosisRecord, item: SourcedValue, siblings: Sequence[SourcedValue]) -> tuple[str, dict[str, Any]]:
    """(formula, rows) of a number that carries neither: a count's, or where it was read."""
    if item.source == "op profile" and item.unit == "count":
        counted = [key for other in siblings for key in other.ops]
        return "number of these ops", _keyed(record, counted) if counted else _with_ops(record.ops.all())
    how = "as reported by the" if item.source == "configuration" else "read from:"
    return f"{how} {item.source or 'the profile'}", {}


def _bottleneck(record: DiagnosisRecord, rest: str) -> Panel | None:
    return _from_item(record, _item_at(record.value.bottleneck.evidence, rest))


def _finding(record: DiagnosisRecord, rest: str) -> Panel | None:
    first, _, second = rest.partition("-")
    finding: Finding | None = _item_at(record.value.findings, first)
    return _from_item(record, _item_at(finding.evidence, second), finding.evidence) if finding is not None else None


def _saving(record: DiagnosisRecord, rest: str) -> Panel | None:
    finding: Finding | None = _item_at(record.value.findings, rest)
    if finding is None or (finding.saving_s is None and finding.saving_share is None):
        return None
    in_seconds = finding.saving_s is not None
    keys = [key for item in finding.evidence for key in item.ops]
    return Panel(
        f"upper bound on the saving: {finding.title}", finding.saving_s if in_seconds else finding.saving_share,
        "s" if in_seconds else "share", "computed",
        "Amdahl bound: the step without this time, all else unchanged.\nBounds of findings overlap and do "
        "not add up.",
        **_keyed(record, keys),
    )  # fmt: skip


def _kpi(record: DiagnosisRecord, key: str) -> Panel | None:
    diagnosis = record.value
    tile = next((tile for tile in presentation.tiles(diagnosis) if tile.key == key), None)
    if tile is None or tile.value is None:
        return None
    more: dict[str, Any] = {}
    if key.startswith("communication"):
        more = _with_ops(record.ops.exclude(collective=""))
    elif key in ("flops_utilization", "hbm_utilization", "mfu"):
        more = _with_ops(record.ops.all())
    elif key in ("step_time_s", "step_time_spread"):
        more = {"rows": _step_rows(diagnosis.timeline)}
    elif key in ("stragglers", "duty_cycle", "idle"):
        more = {"rows": _core_rows(diagnosis.timeline, key)}
    if key == "step_time_s" and not diagnosis.measured:
        return Panel(tile.label, tile.value, tile.unit, "measured", "measured.step_time_s", "configuration", tile.note)
    # As the profile's reader noted it, else as the Analyzer counts it (the glossary).
    noted = (record.run.profile.summary or {}).get("computed") or {}
    known = glossary.by_key().get(key)
    formula = noted.get(key) or noted.get(key.removesuffix("_s")) or (known.formula if known else "")
    if key == "mfu" and diagnosis.mfu_convention:
        formula = f"{formula}\n{diagnosis.mfu_convention}"
    return Panel(tile.label, tile.value, tile.unit, tile.origin, formula, about=tile.note, **more)


def _step_rows(timeline: Timeline) -> list[tuple[str, str]]:
    """Each step, mean over the cores shown."""
    columns = zip(*timeline.durations_s, strict=False)
    return [
        (f"step {number}, mean over {formatting.counted(len(times), 'core')}", _time(sum(times) / len(times)))
        for number, times in zip(timeline.steps, columns, strict=False)
    ][:MOST_ROWS]


def _core_rows(timeline: Timeline, key: str) -> list[tuple[str, str]]:
    """What each core did per step: idle time for duty cycle and idle, own work for stragglers."""
    parts = timeline.parts_s
    rows = []
    for at, core in enumerate(timeline.cores[:MOST_ROWS]):
        count = len(timeline.durations_s[at]) or 1
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
    diagnosis = record.value
    in_seconds = bool(diagnosis.breakdown_s)
    value = (diagnosis.breakdown_s or diagnosis.breakdown_share).get(key)
    if value is None:
        return None
    if key.startswith("ici"):
        ops = _of_axis(record, key.partition(":")[2])
    elif key in ("compute", "hbm", "dcn", "host", "other"):
        ops = record.ops.filter(resource=key)
    else:
        ops = record.ops.none()
    term = bars.term(key, value)
    if not diagnosis.measured:
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
    row: AxisCollective | None = _item_at(record.value.collectives, rest)
    if row is None:
        return None
    achieved, possible = row.achieved_bytes_per_s, row.possible_bytes_per_s
    about = ""
    if achieved and possible:
        about = (
            f"achieved {formatting.quantity(achieved, 'bytes_per_s')} of "
            f"{formatting.quantity(possible, 'bytes_per_s')} link bandwidth of this axis"
        )
    rows = [
        (words, str(formatting.quantity(value, unit)))
        for words, key, unit in _COLLECTIVE_FACTS
        if (value := getattr(row, key)) is not None
    ]
    in_seconds = row.time_s is not None
    return Panel(
        f"{row.kind} on {presentation.axis_name(row.axis)}",
        row.time_s if in_seconds else row.share, "s" if in_seconds else "share", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh",
        about, rows=rows, **_keyed(record, row.ops),
    )  # fmt: skip


def _axis(record: DiagnosisRecord, axis: str) -> Panel | None:
    rows = [row for row in record.value.collectives if presentation.axis_name(row.axis) == axis]
    if not rows:
        return None
    in_seconds = all(row.time_s is not None for row in rows)
    value = sum((row.time_s or 0.0) if in_seconds else row.share for row in rows)
    exposed = [row.exposed_s for row in rows if row.exposed_s is not None]
    about = f"{formatting.seconds(sum(exposed))} of it exposed" if exposed else ""
    return Panel(
        f"collectives on {axis}", value, "s" if in_seconds else "share", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh", about,
        **_keyed(record, [key for row in rows for key in row.ops]),
    )  # fmt: skip


def _waiting(record: DiagnosisRecord, rest: str) -> Panel | None:
    value = presentation.waiting_share(record.value)
    if rest or not value:
        return None
    done = record.ops.exclude(collective="").filter(Q(name__icontains="done") | Q(category__icontains="done"))
    return Panel(
        "waiting for asynchronous collectives", value, "share", "measured",
        "self time of the -done ops of collectives ÷ step time", **_with_ops(done),
    )  # fmt: skip


def _group(record: DiagnosisRecord, rest: str) -> Panel | None:
    column, _, value = rest.partition("-")
    if column not in ("module", "category", "source", "bound_by", "family"):
        return None
    lookup = "data__family" if column == "family" else column
    ops = record.ops.filter(**{lookup: value})
    more = _with_ops(ops)
    if not more["ops"]:
        return None
    return Panel(
        f"{column.replace('_', ' ')} {value or 'unattributed'}", more["ops_share"], "share", "measured",
        "sum of the shares of these ops", **more,
    )  # fmt: skip


_OP_COLUMNS = {
    "time_share": ("share of time", "share", "measured"),
    "achieved_bytes_per_s": ("achieved bandwidth", "bytes_per_s", "computed"),
    "possible_bytes_per_s": ("possible bandwidth", "bytes_per_s", "computed"),
    "roofline_efficiency": ("roofline efficiency", "share", "measured"),
}


def _op(record: DiagnosisRecord, rest: str) -> Panel | None:
    rank, _, column = rest.partition("-")
    number = whole_number(rank, digits=6)
    ops = record.ops.none() if number is None else record.ops.filter(rank=number)
    if column not in _OP_COLUMNS or (op := ops.first()) is None:
        return None
    words, unit, origin = _OP_COLUMNS[column]
    return Panel(f"{words} of {op.name}", getattr(op.value, column), unit, origin, **_with_ops(ops))


def _listed(record: DiagnosisRecord, rest: str) -> Panel | None:
    value = record.value.coverage
    if rest or value is None:
        return None
    formula = "sum of the time shares of the ops that the profile lists"
    return Panel("listed ops", value, "share", "computed", formula, **_with_ops(record.ops.all()))


def _ceiling(record: DiagnosisRecord, rest: str) -> Panel | None:
    diagnosis = record.value
    ceiling = presentation.ceiling(diagnosis)
    if ceiling is None or rest:
        return None
    terms = bars.step_terms(diagnosis.breakdown_s)
    return Panel(
        f"step: {ceiling.label[0].lower()}{ceiling.label[1:]}", ceiling.time_s, "s", "computed",
        "step time − this term, all else unchanged (Amdahl)", rows=[(term.label, _time(term.value)) for term in terms],
    )  # fmt: skip


def _confidence(record: DiagnosisRecord, rest: str) -> Panel | None:
    diagnosis = record.value
    verdict = diagnosis.bottleneck
    if rest:
        return None
    if not diagnosis.measured:
        return Panel(
            f"confidence that {verdict.primary} is the bottleneck", verdict.confidence, "share", "predicted",
            "probability that the predicted parts are in this order, each known to a factor of 1.6 (one standard "
            "deviation), shrunk towards one half by the part of the step the model does not explain; at most 75 %",
            about="an assumption, not a calibrated probability",
        )  # fmt: skip
    return Panel(
        f"confidence that {verdict.primary} is the bottleneck", verdict.confidence, "share", "computed",
        "0.5 + (accuracy at this margin − 0.5) × data quality, at most 97 %\naccuracy: how often a verdict with this "
        "margin is correct on generated steps; margin: distance from the threshold, or between compute and HBM time; "
        "data quality: 1 with a complete roofline, less where FLOPs, ops or step markers are missing",
        about="calibrated on generated steps, not on production runs",
    )  # fmt: skip


_FINDERS = {
    "bottleneck": _bottleneck, "finding": _finding, "saving": _saving, "kpi": _kpi, "term": _term,
    "collective": _collective, "axis": _axis, "group": _group, "ceiling": _ceiling,
    "confidence": _confidence, "waiting": _waiting, "op": _op, "listed": _listed,
}  # fmt: skip
