"""Findings: what they could save, their evidence, and a finding that is doubted examined again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, ToolError
from formatting import listed
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import get
from proposals.agents.capabilities.explaining import basis, explain, figures_in_text, numbers, recorded, whole_message
from proposals.agents.diagnosed import EvidenceRow, FindingRow, Verdict
from proposals.agents.grounding_facts import stems
from proposals.agents.tools import RunTools
from proposals.agents.tools.figures import Figures


def findings_about(ctx: AnswerContext, stems: tuple[str, ...]) -> Answer:
    """Findings whose rule or title has one of the stems."""
    found = yield from get(ctx, RunTools.findings)
    rows = [row for row in found if any(stem in f"{row.rule} {row.title}".lower() for stem in stems)]
    if not rows:
        yield from ctx.say("The diagnosis has no findings on this.")
    yield from ctx.bullets([f"Finding {row.finding}, {row.title}: {row.insight} {row.action}" for row in rows[:3]])


class OneFinding(Arguments):
    finding: Annotated[int | None, Field(ge=1, le=99, description="Number of a finding; empty: all.")] = None


@capability(
    "Findings by potential saving",
    "What can I do to make it faster?",
    "List the findings.",
    "Which optimisations would save the most time?",
    "Explain this finding.",
    "What should I fix first in the program?",
)
def findings(ctx: AnswerContext, given: OneFinding) -> Answer:
    """Findings with insight, action and upper bound on the saving (Amdahl)."""
    found = yield from get(ctx, RunTools.findings)
    rows = [row for row in found if row.finding == given.finding] if given.finding else found
    if not rows:
        raise ToolError(
            f"There is no finding {given.finding}; there are {len(found)}."
            if given.finding
            else "The diagnosis has no findings."
        )
    items = []
    for row in rows[:6]:
        saving = (
            f" (at most {words.time(row.saving_s)} per step, {words.share(row.saving_share)})"
            if row.saving_s and row.saving_share
            else ""
        )
        insight = f" {row.insight}" if given.finding else ""
        items.append(f"**{row.finding}. {row.title}**{saving}:{insight} {row.action}")
    yield from ctx.bullets(items)
    if given.finding:
        yield from evidence(ctx, rows[0])
    else:
        yield from ctx.say("The bounds overlap and do not add up.")


def evidence(ctx: AnswerContext, row: FindingRow) -> Answer:
    items = [
        f"{e.label}: {words.evidence_text(e)} ({e.origin}{', ' + e.formula if e.formula else ''})"
        for e in row.evidence
        if words.evidence_text(e)
    ]
    if items:
        yield from ctx.say("Evidence:")
        yield from ctx.bullets(items)


class Objection(Arguments):
    finding: Annotated[int | None, Field(ge=1, le=99, description="Finding to re-check.")] = None
    text: Annotated[str, Field(max_length=400, description="Your objection.")] = ""


@capability(
    "Re-examination of a finding",
    "I disagree with this finding, check it again.",
    "That finding is wrong.",
    "I do not believe that communication is exposed here.",
    "Are you sure that this diagnosis is right? I think it is something else.",
)
def doubt(ctx: AnswerContext, given: Objection) -> Answer:
    """Re-checks a finding or the bottleneck against its evidence: which numbers were measured, and whether they
    hold."""
    rows = yield from get(ctx, RunTools.findings)
    said = whole_message(ctx, given.text)
    row = next((each for each in rows if each.finding == given.finding), None)
    if row is None and given.finding:
        raise ToolError(f"There is no finding {given.finding}; there are {len(rows)}.")
    figures = yield from figures_in_text(ctx, said)
    if row is None:
        row = _best_matching_finding(rows, said)
    if row is not None:
        yield from ctx.say(f"Finding {row.finding}, {row.title}: {row.insight}")
        yield from _concerning(ctx, row, said)
    else:
        verdict = yield from get(ctx, RunTools.bottleneck)
        yield from ctx.say(
            f"The verdict is {verdict.primary} with {words.percent(verdict.confidence_share)} confidence: "
            f"{verdict.statement}"
        )
        yield from _concerning(ctx, verdict, said)
        yield from _shares(ctx, verdict)
    if figures.numbers:
        yield from ctx.say("Numbers in your message:")
        yield from numbers(ctx, figures.numbers, figures.relations)
    elif said and figures.named:
        yield from ctx.say("What this run shows:")
        yield from ctx.bullets([explain(item) for item in figures.named[:3]])
    yield from _judged(ctx, row, said, figures)


def _best_matching_finding(rows: Sequence[FindingRow], text: str) -> FindingRow | None:
    """The finding that shares most words and ops with a message, at least two."""
    asked, lower = stems(text), text.lower()

    def common(row: FindingRow) -> int:
        own = stems(f"{row.title} {row.rule} {row.insight} {row.mesh_axis or ''}")
        ops = {op.rpartition("/")[2].lower() for each in row.evidence for op in each.ops}
        return len(own & asked) + 3 * any(op in lower for op in ops)

    best = max(rows, key=common, default=None)
    return best if best is not None and common(best) >= 2 else None


def _concerning(ctx: AnswerContext, row: FindingRow | Verdict, text: str) -> Answer:
    """The evidence, what the message speaks of first."""
    asked = stems(text)
    items = [e for e in row.evidence if words.evidence_text(e)]
    items.sort(key=lambda e: -len(stems(e.label) & asked))
    lines = [f"{e.label}: {words.evidence_text(e)} ({_evidence_source(e)})" for e in items[:5]]
    if lines:
        yield from ctx.say("Evidence:")
        yield from ctx.bullets(lines)


def _evidence_source(row: EvidenceRow) -> str:
    return ", ".join(part for part in (row.origin, row.formula, row.source) if part)


def _shares(ctx: AnswerContext, verdict: Verdict) -> Answer:
    """The parts of the step by size where the verdict does not name the largest one."""
    data = yield from get(ctx, RunTools.kpis)
    parts = sorted(data.breakdown_share.items(), key=lambda item: -item[1])[:4]
    if parts and _kind(parts[0][0]) != verdict.primary:
        named = listed([f"{words.part_name(part)} {words.share(value)}" for part, value in parts])
        yield from ctx.say(
            f"The parts of the step, by size: {named}. The verdict names what could be avoided, which need not be "
            "the largest part."
        )


def _kind(part: str) -> str:
    """A part of the breakdown as verdicts call it."""
    if part.startswith(("ici", "dcn")):
        return "communication"
    return {"hbm": "memory", "host_transfer": "host", "kernel_launches": "idle", "bubble": "idle"}.get(part, part)


def _judged(ctx: AnswerContext, row: FindingRow | None, text: str, figures: Figures) -> Answer:
    """Whether what is objected is right, is not, or cannot be decided, and what would decide it."""
    said: list[str] = []
    mesh = ctx.bench.config.mesh
    for role, name in (("pipeline", "pipeline"), ("expert", "expert"), ("model", "tensor"), ("seq", "sequence")):
        if re.search(rf"\b(?:no|not|without|have no|there is no)\b[^.?!]*\b{name}", text, re.IGNORECASE):
            has = mesh.size(role) > 1
            said.append(
                f"Your objection does not hold: this mesh has {mesh.size(role)} shards of {name} parallelism."
                if has
                else f"**You are right**: this mesh, {mesh.text()}, has no {name} parallelism, so it takes no time."
            )
    absent = [item for item in figures.numbers if not item.found]
    agreed = [item for item in figures.numbers if item.found]
    if absent and not agreed:
        said.append(
            "**This run cannot decide it**: your figures are not among its own; a profile that shows them would."
        )
    elif agreed and not absent:
        said.append("Your numbers match this run's, so the difference is in what they count or what follows from them.")
    where = basis(ctx)
    if where:
        right = any("You are right" in sentence for sentence in said)
        said.append(where if right else f"**No further evidence**: {words.lower_first(where)}")
    partly = yield from recorded(ctx)
    if partly:
        said.append(partly)
    if not where and row:
        origins = [each.origin for each in row.evidence]
        assumed = origins.count("predicted")
        said.append(
            f"Of the finding's {len(origins)} numbers, {origins.count('measured')} are measured"
            + (f" and {assumed} predicted" if assumed else "")
            + "; it holds as long as these do, and its saving is an upper bound."
        )
    yield from ctx.say(*said)
