"""The table of collectives per axis and kind."""

from __future__ import annotations

from collections.abc import Sequence

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
    ranked = sorted(cells.items(), key=lambda cell: (-axis_cost[cell[0][0]], -total_share(cell[1])))
    for (axis, kind), ops in ranked:
        share = total_share(ops)
        sent = bandwidth(ops)
        payload = [
            op.collective.payload_bytes * op.op.occurrences
            for op in ops
            if op.collective and op.collective.payload_bytes
        ]
        counted = steps and cores
        timed = [op for op in ops if op.hidden_share is not None]  # a pair's intervals are at its -done op
        rows.append(
            AxisCollective(
                axis="dcn" if axis == "dcn" else axis.partition(":")[2],
                kind=kind,
                time_s=facts.seconds(share),
                share=share,
                count=sum(op.op.occurrences for op in ops) / (steps * cores) if counted else None,
                bytes=sum(payload) / (steps * cores) if counted and payload else None,
                achieved_bytes_per_s=sent[0].value if sent else None,
                possible_bytes_per_s=sent[1].value if sent else None,
                in_flight_s=_sum_per_step(timed, "in_flight_s"),
                exposed_s=_sum_per_step(timed, "exposed_s"),
                hidden_share=hidden_part(timed),
                tensors=tuple(sorted({op.collective.tensor for op in ops if op.collective and op.collective.tensor})),
                waiting_share=total_share(op for op in ops if op.collective and op.collective.part == "done"),
                ops=tuple(keys(ops)),
            )
        )
    return tuple(rows)


def _sum_per_step(ops: Sequence[OpFacts], field: str) -> float | None:
    """A field of the ops summed per step and core; None where no op has it."""
    known = [value for op in ops if (value := op.per_step(getattr(op.op, field))) is not None]
    return sum(known) if known else None
