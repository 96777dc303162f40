"""The questions of a finding: why, from what, which ops, what if it were fixed."""

from __future__ import annotations

from typing import Any

from agent.tools import ToolError
from diagnosis.report import Finding
from dialogue.computations.arguments import OfFinding
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.values import number, plan_values, run_values, step_origin, text
from perfmodel.config import ConfigError
from proposals.agents.tools.look import Look, look
from proposals.agents.tools.operations import Ops, row_of
from proposals.agents.workbench import Workbench


def _finding(bench: Workbench, asked: OfFinding) -> Finding:
    findings = bench.diagnosis.findings
    if asked.finding > len(findings):
        raise ToolError(f"There is no finding {asked.finding}; this run has {len(findings)}.")
    return findings[asked.finding - 1]


def _values(bench: Workbench, asked: OfFinding) -> dict[str, Any]:
    found = look(bench, Look(part="findings", number=asked.finding))
    return {**run_values(bench), "finding": _finding(bench, asked), "findings": found}


def _next(asked: OfFinding, *without: str) -> tuple[Next, ...]:
    keys = ("why_finding", "from_what", "finding_ops", "if_fixed")
    return tuple(Next(key, {"finding": asked.finding}) for key in keys if key not in without)


def _title(bench: Workbench, asked: OfFinding, question: str) -> str:
    return f"{question} Finding {asked.finding}: {_finding(bench, asked).title}".replace("`", "")


@computation("Why this finding?", "finding", "why cause reason finding")
def why_finding(bench: Workbench, asked: OfFinding) -> Answer:
    """What a finding sees, what to do, and what it could save at most."""
    return Answer(_values(bench, asked), (), _next(asked, "why_finding"), _title(bench, asked, "Why?"))


@computation("From what, and how sure?", "finding", "evidence source how sure measured from what finding")
def from_what(bench: Workbench, asked: OfFinding) -> Answer:
    """The numbers behind a finding, each with its origin, formula and source."""
    return Answer(_values(bench, asked), (), _next(asked, "from_what"), _title(bench, asked, "From what?"))


@computation("Which ops?", "finding", "ops behind finding operations kernels")
def finding_ops(bench: Workbench, asked: OfFinding) -> Answer:
    """The ops that a finding was computed from, by time."""
    keys = {key for item in _finding(bench, asked).evidence for key in item.ops}
    ops = sorted((op for op in bench.diagnosis.ops if op.key in keys), key=lambda op: -op.time_share)
    found = Ops(matching=len(ops), rows=tuple(row_of(bench, op) for op in ops[:12]))
    values = {**_values(bench, asked), "found": found}
    return Answer(values, (), _next(asked, "finding_ops"), _title(bench, asked, "Which ops?"))


@computation("What if this were fixed?", "finding", "fixed saving gain amdahl what if without finding")
def if_fixed(bench: Workbench, asked: OfFinding) -> Answer:
    """The step without what a finding costs, as a bound, and the proposals that address it."""
    found, step = _finding(bench, asked), bench.diagnosis.kpis.get("step_time_s")
    left = step - found.saving_s if step and found.saving_s else None
    addressed, problem = [], ""
    try:
        addressed = [item.proposal for item in bench.proposals if found.rule in item.proposal.findings]
    except ConfigError as error:
        problem = str(error)
    return Answer(
        {
            **_values(bench, asked),
            "left": number(left, "s", "predicted", "step time at least, if it were gone"),
            "speedup": number(step / left, "speedup", "predicted", "speed-up at most") if step and left else None,
            "measured": step_origin(bench) == "measured",
            "proposals": [plan_values(bench, plan) for plan in addressed],
            "problem": text(problem),
        },
        (),
        (*(Next("why_proposal", {"proposal": plan.rank}) for plan in addressed[:2]), *_next(asked, "if_fixed")),
        _title(bench, asked, "What if this were fixed?"),
    )
