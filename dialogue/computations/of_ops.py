"""The questions of ops and of the collectives of an axis."""

from __future__ import annotations

from dialogue.computations.arguments import OfAxis, OfOp, OfOps
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.values import number, text
from experiments.step_profile import PROFILE
from proposals.agents.tools import operations
from proposals.agents.tools.look import Look, look
from proposals.agents.tools.parts import Collectives
from proposals.agents.workbench import Workbench


@computation("Which ops take the time?", "ops", "ops operations kernels slowest top time module source")
def ops(bench: Workbench, asked: OfOps) -> Answer:
    """Ops by time: all, those whose name, module or category holds some words, or collectives on an axis."""
    about = " ".join(part for part in (asked.words, f"on {asked.axis}" if asked.axis else "") if part)
    further = (Next("verdict"), Next("axis"))
    if bench.diagnosis.basis != PROFILE:
        return Answer({}, (), further)
    found = operations.ops(bench, operations.Filter(text=asked.words, axis=asked.axis, top=asked.top))
    title = f"Which ops take the time? {about}".strip()
    return Answer({"profiled": True, "about": text(about), "found": found}, (), further, title)


@computation("What limits this op?", "op", "op operation kernel limits bound roofline slow")
def op(bench: Workbench, asked: OfOp) -> Answer:
    """One op: its time, what bounds it, how far it is from its roofline, and where it is in the program."""
    if bench.diagnosis.basis != PROFILE:
        return Answer({}, (), (Next("verdict"),))
    found = operations.ops(bench, operations.Filter(op=asked.op))
    (row,) = found.rows
    alike = Next("ops", {"words": row.module}, f"Which ops of {row.module} take the time?" if row.module else "")
    on_axis = (Next("axis", {"axis": row.axis}, f"How long do collectives on {row.axis} take?"),) if row.axis else ()
    return Answer({"found": found, "r": row}, (), (alike, *on_axis, Next("verdict")), f"What limits {row.name}?")


@computation(
    "How long do collectives take?",
    "ops",
    "axis collectives communication all-gather reduce-scatter all-reduce exposed bandwidth links ici dcn",
)
def axis(bench: Workbench, asked: OfAxis) -> Answer:
    """Collectives by axis and kind: time, what no other op hides, bytes, and achieved against possible bandwidth."""
    further = (Next("sharding_or_input"), Next("parallelism"))
    if bench.diagnosis.basis != PROFILE:
        return Answer({}, (), further)
    found = look(bench, Look(part="collectives", full=True))
    assert isinstance(found, Collectives)
    wanted = asked.axis.replace(", ", "+")
    rows = [row for row in found.rows if not wanted or wanted in (row.axis, *row.axis.split("+"))]
    exposed = [row.exposed_s for row in rows if row.exposed_s is not None]
    return Answer(
        {
            "profiled": True,
            "axis": text(asked.axis),
            "rows": rows[:10],
            "exposed": number(sum(exposed), "s", "measured", "exposed communication per step") if exposed else None,
        },
        (),
        further,
        f"How long do collectives{f' on {asked.axis}' if asked.axis else ''} take?",
    )
