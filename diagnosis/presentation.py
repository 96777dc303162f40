"""A stored diagnosis as the page shows it: tiles, terms, the matrix of collectives, the roofline's dots, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, QuerySet, Sum

from diagnosis.models import DiagnosisRecord, OpRow
from experiments import bars, formatting

#: key, label, unit, where it comes from unless the diagnosis says otherwise, what it is a share of.
_TILES = (
    ("step_time_s", "Step time", "s", "measured", ""),
    ("duty_cycle", "Duty cycle", "share", "measured", "of the step a core is busy"),
    ("communication", "Communication", "share", "computed", "of the step in collectives"),
    ("input", "Input", "share", "measured", "of the step waiting for input"),
    ("idle", "Idle", "share", "measured", "of the step nothing runs"),
    ("flops_utilization", "FLOPs utilisation", "share", "measured", "of the peak rate"),
    ("hbm_utilization", "HBM bandwidth", "share", "measured", "of the peak bandwidth"),
    ("mfu", "MFU", "share", "computed", ""),
    ("goodput", "Goodput", "share", "computed", "of the profiled window in steps"),
)
_STEP_SHARES = {"duty_cycle", "communication", "input", "idle"}
_RESOURCE_COLUMNS = (("compute", "Compute"), ("hbm", "HBM"), ("ici", "Collectives"), ("other", "Other"))
MAX_DOTS = 400


@dataclass(frozen=True)
class Tile:
    """A KPI tile.  value None: `note` says why it was not measured."""

    key: str
    label: str
    value: float | None
    unit: str
    origin: str
    note: str


@dataclass(frozen=True)
class Cell:
    """Time and bandwidth of one kind of collective on one axis; index: its row in the diagnosis."""

    index: int
    time_s: float | None
    achieved: float | None
    possible: float | None


@dataclass(frozen=True)
class AxisRow:
    """One axis of the matrix, a cell per kind (None: none ran)."""

    axis: str
    css: str
    size: int | None
    cells: list[list[Cell]]
    time_s: float
    share: float | None


@dataclass(frozen=True)
class Matrix:
    kinds: list[str]
    rows: list[AxisRow]
    total_s: float


@dataclass(frozen=True)
class ModuleRow:
    module: str
    times: list[tuple[str, float]]
    segments: list[bars.Segment]
    total_s: float
    share: float


@dataclass(frozen=True)
class EvidencePanel:
    """What stands behind one number: its value, rows, formula and source."""

    title: str
    value: float | None
    unit: str
    origin: str
    formula: str = ""
    source: str = ""
    about: str = ""
    ops: list[OpRow] = field(default_factory=list)
    ops_missing: int = 0

    @property
    def ops_time_s(self) -> float:
        return sum(op.time_s or 0.0 for op in self.ops)

    @property
    def ops_share(self) -> float:
        return sum(op.time_share for op in self.ops)


def tiles(data: Mapping[str, Any]) -> list[Tile]:
    kpis, missing = data.get("kpis") or {}, data.get("not_measured") or {}
    step = kpis.get("step_time_s")
    origins = data.get("kpi_origins") or {}
    found = []
    known = {key for key, *_ in _TILES}
    extra = [(key, key.replace("_", " ").capitalize(), "share", "measured", "") for key in kpis if key not in known]
    for key, label, unit, origin, about in (*_TILES, *extra):
        value = kpis.get(key)
        if value is None:
            reason = missing.get(key) or missing.get(key.removesuffix("_s")) or "the profile does not say"
            found.append(Tile(key, label, None, unit, "", reason))
            continue
        note = about
        if key in _STEP_SHARES and step:
            note = f"{formatting.seconds(value * step)} {about}"
        if key == "mfu":
            note = data.get("mfu_convention") or "of the peak rate, model FLOPs"
        if key == "step_time_s":
            note = data.get("step_time_note") or "mean over steps and cores"
        found.append(Tile(key, label, value, unit, origins.get(key, origin), note))
    return found


def matrix(data: Mapping[str, Any], mesh: Mapping[str, Any] | None, step_s: float | None) -> Matrix:
    """Collectives per axis and kind; axes in the mesh's order, DCN last."""
    roles = (mesh or {}).get("axis_roles") or {}
    sizes: dict[str, int] = dict((mesh or {}).get("ici") or {})
    table: dict[str, dict[str, list[Cell]]] = {}
    kinds: list[str] = []
    shares: dict[str, float] = {}
    for index, row in enumerate(data.get("collectives") or ()):
        axis, kind = axis_name(row.get("axis")), row.get("kind") or "collective"
        if kind not in kinds:
            kinds.append(kind)
        cell = Cell(index, row.get("time_s"), row.get("achieved_bytes_per_s"), row.get("possible_bytes_per_s"))
        table.setdefault(axis, {}).setdefault(kind, []).append(cell)
        shares[axis] = shares.get(axis, 0.0) + (row.get("share") or 0.0)
    order = {axis: place for place, axis in enumerate(sizes)}
    rows = []
    for axis in sorted(table, key=lambda a: (a == "dcn", order.get(a.split(",")[0].strip(), 99), a)):
        cells = [table[axis].get(kind, []) for kind in kinds]
        time_s = sum(cell.time_s or 0.0 for group in cells for cell in group)
        share = time_s / step_s if step_s else shares.get(axis)
        rows.append(AxisRow(axis, bars.axis_class(axis, roles), _size(axis, sizes), cells, time_s, share))
    rows.sort(key=lambda row: (row.axis == "dcn", -row.time_s))
    return Matrix(kinds, rows, sum(row.time_s for row in rows))


def _size(axis: str, sizes: Mapping[str, int]) -> int | None:
    size = 1
    for name in axis.split(","):
        if name.strip() not in sizes:
            return None
        size *= sizes[name.strip()]
    return size


def axis_name(axis: Any) -> str:
    """`model`, `data, seq`, `dcn`; `not matched` where no axis explains the participants."""
    if not axis:
        return "not matched"
    return axis if isinstance(axis, str) else ", ".join(axis)


def roofline(data: Mapping[str, Any], ops: QuerySet[OpRow], bounds: Mapping[str, str]) -> dict[str, Any] | None:
    """The chart's data in TFLOP/s and GB/s; None where no op has both rate and intensity.

    points: [name, intensity FLOP/byte, TFLOP/s, ms, bound, rank], the longest MAX_DOTS.
    """
    facts = data.get("roofline") or {}
    peak = facts.get("peak_flops_per_s")
    bandwidth = facts.get("peak_hbm_bytes_per_s") or facts.get("hbm_bytes_per_s")
    points = []
    for row in ops.filter(data__flops_per_s__gt=0, data__operational_intensity__gt=0).order_by("rank")[:MAX_DOTS]:
        rate, intensity = row.data["flops_per_s"], row.data["operational_intensity"]
        time_s = row.time_s if row.time_s is not None else row.time_share
        points.append([row.name, intensity, rate / 1e12, time_s * 1e3, bounds.get(row.bound_by, row.bound_by), row.rank])
    if not points:
        return None
    return {"peak": peak / 1e12 if peak else None, "bw": bandwidth / 1e9 if bandwidth else None, "points": points}


def modules(ops: QuerySet[OpRow]) -> list[ModuleRow]:
    """Time per module and resource, by descending time; ops that carry no module stand under `not named`."""
    sums: dict[str, dict[str, float]] = {}
    total = 0.0
    for module, res, seconds in ops.order_by().values_list("module", "resource").annotate(t=Sum("time_s")):
        if not seconds:
            continue
        column = res if res in ("compute", "hbm") else "ici" if res.startswith(("ici", "dcn")) else "other"
        row = sums.setdefault(module or "not named", {})
        row[column] = row.get(column, 0.0) + seconds
        total += seconds
    largest = max((sum(row.values()) for row in sums.values()), default=0.0)
    css = {"compute": "compute", "hbm": "hbm", "ici": "ici", "other": "idle"}
    rows = []
    for module, parts in sums.items():
        terms = [bars.Term(key, word, css[key], parts[key]) for key, word in _RESOURCE_COLUMNS if parts.get(key)]
        whole = sum(parts.values())
        times = [(key, parts.get(key, 0.0)) for key, _ in _RESOURCE_COLUMNS]
        rows.append(ModuleRow(module, times, bars.segments(terms, largest), whole, whole / total))
    return sorted(rows, key=lambda row: -row.total_s)


def group_counts(ops: QuerySet[OpRow], column: str) -> list[dict[str, Any]]:
    """Ops summed by one of their columns: value, count, time, share."""
    rows = ops.order_by().values(column).annotate(n=Count("pk"), time=Sum("time_s"), share=Sum("time_share"))
    return [
        {"value": row[column], "count": row["n"], "time_s": row["time"], "share": row["share"]}
        for row in rows.order_by("-share")
    ]


def evidence(record: DiagnosisRecord, ref: str) -> EvidencePanel | None:
    """What `ref` names: `bottleneck-0`, `finding-2-1`, `kpi-mfu`, `term-ici:model`, `collective-3`; None if nothing."""
    data = record.data
    kind, _, rest = ref.partition("-")
    if kind == "bottleneck":
        return _from_item(record, _at(data.get("bottleneck", {}).get("evidence"), rest))
    if kind == "finding":
        first, _, second = rest.partition("-")
        finding = _at(data.get("findings"), first)
        return _from_item(record, _at(finding.get("evidence"), second)) if finding else None
    if kind == "kpi":
        return _kpi(record, rest)
    if kind == "term":
        return _term(record, rest)
    if kind == "collective":
        return _collective(record, _at(data.get("collectives"), rest))
    return None


def _at(items: Sequence[Any] | None, index: str) -> Any:
    return items[int(index)] if items and index.isdigit() and int(index) < len(items) else None


def _rows(record: DiagnosisRecord, keys: Sequence[str]) -> tuple[list[OpRow], int]:
    wanted = list(dict.fromkeys(keys))
    rows = list(record.ops.filter(key__in=wanted).order_by("rank")[:100])
    return rows, len(wanted) - len(rows)


def _from_item(record: DiagnosisRecord, item: Mapping[str, Any] | None) -> EvidencePanel | None:
    if not item:
        return None
    rows, missing = _rows(record, item.get("ops") or ())
    return EvidencePanel(
        item.get("label", ""), item.get("value"), item.get("unit", ""), item.get("origin", ""),
        item.get("formula", ""), item.get("source", ""), "", rows, missing,
    )  # fmt: skip


def _kpi(record: DiagnosisRecord, key: str) -> EvidencePanel | None:
    tile = next((tile for tile in tiles(record.data) if tile.key == key), None)
    if tile is None or tile.value is None:
        return None
    cited = [*record.data.get("bottleneck", {}).get("evidence", ())]
    cited += [item for finding in record.data.get("findings", ()) for item in finding.get("evidence", ())]
    same = next((e for e in cited if e.get("unit") == tile.unit and e.get("value") == tile.value), None)
    detail = (record.data.get("kpi_details") or {}).get(key) or same or {}
    rows, missing = _rows(record, detail.get("ops") or ())
    return EvidencePanel(
        tile.label, tile.value, tile.unit, detail.get("origin") or tile.origin,
        detail.get("formula", ""), detail.get("source", ""), tile.note, rows, missing,
    )  # fmt: skip


def _term(record: DiagnosisRecord, key: str) -> EvidencePanel | None:
    value = (record.data.get("breakdown_s") or {}).get(key)
    if value is None:
        return None
    ops = record.ops.order_by("rank")
    if key.startswith("ici:"):
        ops = ops.filter(mesh_axis=key.partition(":")[2].replace(",", ", ").replace(",  ", ", "))
    elif key in ("compute", "hbm", "dcn", "host", "other"):
        ops = ops.filter(resource=key)
    else:
        ops = ops.none()
    label = bars.term(key, value).label
    return EvidencePanel(
        f"{label} per step", value, "s", "computed", "sum of the self times of these ops, per step and core",
        "", "where no op ran: from the step's own breakdown" if not ops.exists() else "", list(ops[:100]),
    )  # fmt: skip


def _collective(record: DiagnosisRecord, row: Mapping[str, Any] | None) -> EvidencePanel | None:
    if not row:
        return None
    rows, missing = _rows(record, row.get("ops") or ())
    achieved, possible = row.get("achieved_bytes_per_s"), row.get("possible_bytes_per_s")
    about = ""
    if achieved and possible:
        about = (
            f"achieved {formatting.quantity(achieved, 'bytes_per_s')} of "
            f"{formatting.quantity(possible, 'bytes_per_s')} that the links of this axis could give"
        )
    return EvidencePanel(
        f"{row.get('kind', 'collective')} on {axis_name(row.get('axis'))}", row.get("time_s"), "s", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh", about, rows, missing,
    )  # fmt: skip
