"""The questions of a finding: why, from what, which ops, what if it were fixed."""

from __future__ import annotations

from typing import Any

from agent.tools import ToolError
from diagnosis.report import Finding
from dialogue.computations.arguments import OfFinding
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.of_ops import op_rows
from dialogue.computations.values import number, parts_origin, plan_values, run_values, sentence, step_origin, text
from perfmodel.config import ConfigError
from proposals.agents.values import Origin
from proposals.agents.workbench import Workbench


def _finding(bench: Workbench, asked: OfFinding) -> Finding:
    findings = bench.diagnosis.findings
    if asked.finding > len(findings):
        raise ToolError(f"There is no finding {asked.finding}; this run has {len(findings)}.")
    return findings[asked.finding - 1]


def _values(bench: Workbench, asked: OfFinding) -> dict[str, Any]:
    found, name = _finding(bench, asked), f"finding {asked.finding}"
    href = f"finding:{asked.finding}"
    origin: Origin = "computed" if parts_origin(bench) == "measured" else "predicted"
    return {
        **run_values(bench),
        "name": text(name, href),
        "title": text(found.title),
        "saving": number(found.saving_s, "s", origin, f"{name} · at most saved", href),
        "share": number(found.saving_share, "share", origin, f"{name} · at most saved, of the step", href),
    }


def _next(asked: OfFinding, *without: str) -> tuple[Next, ...]:
    keys = ("why_finding", "from_what", "finding_ops", "if_fixed")
    return tuple(Next(key, {"finding": asked.finding}) for key in keys if key not in without)


def _title(bench: Workbench, asked: OfFinding, question: str) -> str:
    return f"{question} Finding {asked.finding}: {_finding(bench, asked).title}".replace("`", "")


@computation("Why this finding?", "finding", "why cause reason finding")
def why_finding(bench: Workbench, asked: OfFinding) -> Answer:
    """What a finding sees, what to do, and what it could save at most."""
    found = _finding(bench, asked)
    return Answer(
        {
            **_values(bench, asked),
            "insight": sentence(found.insight), "action": sentence(found.action), "impact": sentence(found.impact),
            "flags": [text(flag) for flag in found.flags], "flags_source": text(found.flags_source),
        },
        (),
        _next(asked, "why_finding"),
        _title(bench, asked, "Why?"),
    )  # fmt: skip


@computation("From what, and how sure?", "finding", "evidence source how sure measured from what finding")
def from_what(bench: Workbench, asked: OfFinding) -> Answer:
    """The numbers behind a finding, each with its origin, formula and source."""
    rows = [
        {
            "label": text(item.label),
            "value": number(item.value, item.unit, "stated" if item.origin == "sourced" else item.origin, item.label),  # type: ignore[arg-type]
            "origin": text(item.origin), "formula": text(item.formula), "source": text(item.source),
        }
        for item in _finding(bench, asked).evidence
        if item.value is not None
    ]  # fmt: skip
    return Answer(
        {**_values(bench, asked), "rows": rows}, (), _next(asked, "from_what"), _title(bench, asked, "From what?")
    )


@computation("Which ops?", "finding", "ops behind finding operations kernels")
def finding_ops(bench: Workbench, asked: OfFinding) -> Answer:
    """The ops that a finding was computed from, by time."""
    found = _finding(bench, asked)
    keys = {key for item in found.evidence for key in item.ops}
    ops = sorted((op for op in bench.diagnosis.ops if op.key in keys), key=lambda op: -op.time_share)
    values = {
        **_values(bench, asked),
        "rows": op_rows(ops[:12]),
        "count": number(len(ops), "count", "measured", "ops behind it"),
    }
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
