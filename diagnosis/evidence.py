"""What stands behind one number of a diagnosis: its value, rows, formula and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from diagnosis import presentation
from diagnosis.models import DiagnosisRecord, OpRow
from experiments import bars, formatting


@dataclass(frozen=True)
class Panel:
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


def find(record: DiagnosisRecord, ref: str) -> Panel | None:
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


def _from_item(record: DiagnosisRecord, item: Mapping[str, Any] | None) -> Panel | None:
    if not item:
        return None
    rows, missing = _rows(record, item.get("ops") or ())
    return Panel(
        item.get("label", ""), item.get("value"), item.get("unit", ""), item.get("origin", ""),
        item.get("formula", ""), item.get("source", ""), "", rows, missing,
    )  # fmt: skip


def _kpi(record: DiagnosisRecord, key: str) -> Panel | None:
    tile = next((tile for tile in presentation.tiles(record.data) if tile.key == key), None)
    if tile is None or tile.value is None:
        return None
    cited = [*record.data.get("bottleneck", {}).get("evidence", ())]
    cited += [item for finding in record.data.get("findings", ()) for item in finding.get("evidence", ())]
    same = next((e for e in cited if e.get("unit") == tile.unit and e.get("value") == tile.value), None)
    detail = (record.data.get("kpi_details") or {}).get(key) or same or {}
    rows, missing = _rows(record, detail.get("ops") or ())
    return Panel(
        tile.label, tile.value, tile.unit, detail.get("origin") or tile.origin,
        detail.get("formula", ""), detail.get("source", ""), tile.note, rows, missing,
    )  # fmt: skip


def _term(record: DiagnosisRecord, key: str) -> Panel | None:
    value = (record.data.get("breakdown_s") or {}).get(key)
    if value is None:
        return None
    ops = record.ops.order_by("rank")
    if key.startswith("ici:"):
        axes = bars.axes_of(key.partition(":")[2])
        ops = ops.filter(mesh_axis__in=[", ".join(order) for order in permutations(axes)])
    elif key in ("compute", "hbm", "dcn", "host", "other"):
        ops = ops.filter(resource=key)
    else:
        ops = ops.none()
    label = bars.term(key, value).label
    return Panel(
        f"{label} per step", value, "s", "computed", "sum of the self times of these ops, per step and core",
        "", "where no op ran: from the step's own breakdown" if not ops.exists() else "", list(ops[:100]),
    )  # fmt: skip


def _collective(record: DiagnosisRecord, row: Mapping[str, Any] | None) -> Panel | None:
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
    return Panel(
        f"{row.get('kind', 'collective')} on {presentation.axis_name(row.get('axis'))}",
        row.get("time_s"), "s", "measured",
        "self time of these ops, per step and core", "participants from replica_groups and the mesh",
        about, rows, missing,
    )  # fmt: skip
