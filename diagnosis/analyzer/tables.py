"""Tables beside the findings: collectives per axis and kind, points of the roofline plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, OpFacts, hidden_part, keys, total_share
from diagnosis.analyzer.rules.links import bandwidth
from diagnosis.report import AxisCollective, OpGroup, Roofline, RooflinePoint

#: Points of the roofline plot; smaller ops are noise on it.
ROOFLINE_POINTS = 1000
GROUP_ROWS = 40
_GROUPS: dict[str, Callable[[OpFacts], str]] = {
    "category": lambda op: op.op.category,
    "module": lambda op: op.module,
    "source": lambda op: op.op.source,
    "bound_by": lambda op: op.op.bound_by or "",
}


def collectives(facts: Facts) -> tuple[AxisCollective, ...]:
    """Rows by axis and kind, costliest axis first: time per step and core, bytes per step and core, bandwidth."""
    steps, cores = len(facts.profile.steps), facts.profile.device.measured_cores
    cells: dict[tuple[str, str], list[OpFacts]] = {}
    for op in facts.collectives:
        if op.collective:
            cells.setdefault((axis_label(op), op.collective.kind), []).append(op)
    axis_cost: dict[str, float] = {}
    for (axis, _), ops in cells.items():
        axis_cost[axis] = axis_cost.get(axis, 0.0) + total_share(ops)
    rows: list[AxisCollective] = []
    for (axis, kind), ops in cells.items():
        share = total_share(ops)
        sent = bandwidth(ops)
        payload = [
            op.collective.payload_bytes * op.op.occurrences
            for op in ops
            if op.collective and op.collective.payload_bytes
        ]
        counted = steps and cores
        rows.append(
            AxisCollective(
                axis=_axis_text(axis),
                kind=kind,
                time_s=facts.seconds(share),
                share=share,
                count=sum(op.op.occurrences for op in ops) / (steps * cores) if counted else None,
                bytes=sum(payload) / (steps * cores) if counted and payload else None,
                achieved_bytes_per_s=sent[0].value if sent else None,
                possible_bytes_per_s=sent[1].value if sent else None,
                **_exposure(ops),
                tensors=tuple(sorted({op.collective.tensor for op in ops if op.collective and op.collective.tensor})),
                waiting_share=total_share(op for op in ops if op.collective and op.collective.part == "done"),
                ops=tuple(keys(ops)),
            )
        )
    rows.sort(key=lambda row: (-axis_cost[_bar(row.axis)], -row.share))
    return tuple(rows)


class _Exposure(TypedDict):
    in_flight_s: float | None
    exposed_s: float | None
    hidden_share: float | None


def _exposure(ops: Sequence[OpFacts]) -> _Exposure:
    """Time in flight and exposed per step and core, where intervals are known (a pair's at its -done op)."""
    timed = [op for op in ops if op.hidden_share is not None]
    flight = [value for op in timed if (value := op.per_step(op.op.in_flight_s)) is not None]
    exposed = [value for op in timed if (value := op.per_step(op.op.exposed_s)) is not None]
    return {
        "in_flight_s": sum(flight) if flight else None,
        "exposed_s": sum(exposed) if exposed else None,
        "hidden_share": hidden_part(timed),
    }


def groups(facts: Facts) -> dict[str, tuple[OpGroup, ...]]:
    """The ops summed by category, module, source line and bound, see `Diagnosis.groups`."""
    by_name: dict[str, tuple[OpGroup, ...]] = {}
    for name, of in _GROUPS.items():
        rows: dict[str, list[OpFacts]] = {}
        for op in facts.ops:
            rows.setdefault(of(op), []).append(op)
        summed = [
            OpGroup(
                value=value,
                count=len(ops),
                time_s=facts.seconds(total_share(ops)),
                share=total_share(ops),
                flops=_total(op.per_step(op.op.flops) for op in ops),
                hbm_bytes=_total(op.per_step(op.op.hbm_bytes) for op in ops),
            )
            for value, ops in rows.items()
        ]
        by_name[name] = tuple(sorted(summed, key=lambda row: -row.share)[:GROUP_ROWS])
    return by_name


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _axis_text(bar: str) -> str:
    """`model`, `data+seq`, `dcn`, or empty where the axis is unknown."""
    return "dcn" if bar == "dcn" else bar.partition(":")[2]


def _bar(axis: str) -> str:
    return axis if axis == "dcn" else (f"ici:{axis}" if axis else "ici")


def roofline(facts: Facts) -> Roofline:
    """Peaks per core and one point per op with a known intensity: FLOPs per HBM byte, FLOP/s, time."""
    device = facts.profile.device
    points = []
    for op in facts.ops[:ROOFLINE_POINTS]:
        rate, intensity = op.op.flops_per_s, op.op.operational_intensity
        if rate and intensity:
            points.append(
                RooflinePoint(
                    op.key, op.op.name, intensity, rate, op.time_s, op.share, op.op.bound_by, op.resource,
                    op.op.roofline_efficiency,
                )
            )  # fmt: skip
    peak, bandwidth_ = device.peak_flops_per_s, device.peak_hbm_bytes_per_s
    return Roofline(peak, bandwidth_, peak / bandwidth_ if peak and bandwidth_ else None, tuple(points))
