"""The table of collectives per axis and kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, OpFacts, hidden_part, keys, total_share
from diagnosis.analyzer.rules.links import bandwidth
from diagnosis.report import AxisCollective


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


def _axis_text(bar: str) -> str:
    """`model`, `data+seq`, `dcn`, or empty where the axis is unknown."""
    return "dcn" if bar == "dcn" else bar.partition(":")[2]


def _bar(axis: str) -> str:
    return axis if axis == "dcn" else (f"ici:{axis}" if axis else "ici")
