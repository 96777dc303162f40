"""The questions of ops and of the collectives of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnosis.report import OpDiagnosis
from dialogue.computations.arguments import OfAxis, OfOps
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.values import number, run_values, text
from experiments.step_profile import PROFILE
from proposals.agents.workbench import Workbench


def op_rows(ops: Sequence[OpDiagnosis]) -> list[dict[str, Any]]:
    """A row of values for each op."""
    return [
        {
            "name": text(op.name, f"op:{op.key}"),
            "where": text(op.module or op.category),
            "bound": text(op.bound_by or ""),
            "time": number(op.time_s, "s", "measured", f"{op.name} · time per step", f"op:{op.key}"),
            "share": number(op.time_share, "share", "measured", f"{op.name} · share of the step", f"op:{op.key}"),
            "roofline": number(op.roofline_efficiency, "share", "computed", f"{op.name} · of its roofline"),
        }
        for op in ops
    ]


@computation("Which ops take the time?", "ops", "ops operations kernels slowest top time module source")
def ops(bench: Workbench, asked: OfOps) -> Answer:
    """Ops by time: all, those whose name, module or category holds some words, or collectives on an axis."""
    words = asked.words.lower().split()
    found = [
        op
        for op in bench.diagnosis.ops
        if all(word in f"{op.name} {op.module} {op.category} {op.family} {op.source}".lower() for word in words)
        and (not asked.axis or asked.axis in _axes(op))
    ]
    found.sort(key=lambda op: -op.time_share)
    about = " ".join(part for part in (asked.words, f"on {asked.axis}" if asked.axis else "") if part)
    seconds = [op.time_s for op in found if op.time_s is not None]
    return Answer(
        {
            "profiled": bench.diagnosis.basis == PROFILE,
            "about": text(about),
            "count": number(len(found), "count", "measured", "ops that match"),
            "time": number(sum(seconds), "s", "measured", "ops that match · time per step") if seconds else None,
            "share": number(sum(op.time_share for op in found), "share", "measured", "ops that match · share"),
            "rows": op_rows(found[: asked.top]),
        },
        (),
        (Next("verdict"), Next("axis")),
        f"Which ops take the time? {about}".strip(),
    )


@computation(
    "How long do collectives take?",
    "ops",
    "axis collectives communication all-gather reduce-scatter all-reduce exposed bandwidth links ici dcn",
)
def axis(bench: Workbench, asked: OfAxis) -> Answer:
    """Collectives by axis and kind: time, what no other op hides, bytes, and achieved against possible bandwidth."""
    rows = [
        row for row in bench.diagnosis.collectives if not asked.axis or asked.axis in (row.axis, *row.axis.split("+"))
    ]
    values = [
        {
            "axis": text(row.axis or "no axis matched"),
            "kind": text(row.kind),
            "time": number(row.time_s, "s", "measured", f"{row.kind} on {row.axis} · time per step"),
            "exposed": number(row.exposed_s, "s", "measured", f"{row.kind} on {row.axis} · exposed"),
            "bytes": number(row.bytes, "bytes", "measured", f"{row.kind} on {row.axis} · bytes per step and core"),
            "achieved": number(
                row.achieved_bytes_per_s, "bytes_per_s", "computed", f"{row.kind} on {row.axis} · achieved"
            ),
            "possible": number(
                row.possible_bytes_per_s, "bytes_per_s", "stated", f"{row.kind} on {row.axis} · possible"
            ),
        }
        for row in rows[:10]
    ]
    exposed = [row.exposed_s for row in rows if row.exposed_s is not None]
    return Answer(
        {
            **run_values(bench),
            "axis": text(asked.axis),
            "rows": values,
            "exposed": number(sum(exposed), "s", "measured", "exposed communication per step") if exposed else None,
        },
        (),
        (Next("sharding_or_input"), Next("parallelism")),
        f"How long do collectives{f' on {asked.axis}' if asked.axis else ''} take?",
    )


def _axes(op: OpDiagnosis) -> tuple[str, ...]:
    return (op.mesh_axis,) if isinstance(op.mesh_axis, str) else op.mesh_axis or ()
