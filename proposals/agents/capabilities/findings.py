"""Findings: what they could save, their evidence, and a finding that is doubted examined again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, ToolError
from proposals.agents import words
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import Row, get
from proposals.agents.capabilities.desk import Answer, Desk


def findings_about(desk: Desk, stems: tuple[str, ...]) -> Answer:
    """Findings whose rule or title has one of the stems."""
    found = yield from get(desk, "findings")
    rows = [r for r in found.get("rows", []) if any(s in f"{r['rule']} {r['title']}".lower() for s in stems)]
    if not rows:
        yield from desk.say("The diagnosis has no finding on this.")
    yield from desk.bullets([f"Finding {r['finding']}, {r['title']}: {r['insight']} {r['action']}" for r in rows[:3]])


class OneFinding(Arguments):
    finding: Annotated[int | None, Field(ge=1, le=99, description="Number of a finding; empty: all.")] = None


@capability(
    "Findings, by what they could save",
    "What can I do to make it faster?",
    "List the findings.",
    "Which optimisations would save the most time?",
    "Explain this finding.",
    "What should I fix first in the program?",
)
def findings(desk: Desk, given: OneFinding) -> Answer:
    """What costs time: each finding with its insight, action and the most it could save (Amdahl bound)."""
    found = yield from get(desk, "findings")
    rows = found.get("rows", [])
    if given.finding:
        rows = [row for row in rows if row["finding"] == given.finding]
    if not rows:
        count = len(found.get("rows", []))
        raise ToolError(
            f"There is no finding {given.finding}; there are {count}."
            if given.finding
            else "The diagnosis has no finding."
        )
    items = []
    for row in rows[:6]:
        saving = (
            f" (at most {words.time(row['saving_s'])} per step, {words.share(row['saving_share'])})"
            if row.get("saving_s") and row.get("saving_share")
            else ""
        )
        insight = f" {row['insight']}" if given.finding else ""
        items.append(f"**{row['finding']}. {row['title']}**{saving}:{insight} {row['action']}")
    yield from desk.bullets(items)
    if given.finding:
        yield from evidence(desk, rows[0])
    else:
        yield from desk.say("The bounds overlap and do not add up.")


def evidence(desk: Desk, row: Row) -> Answer:
    items = [
        f"{e['label']}: {e['text']} ({e['origin']}{', ' + e['formula'] if e.get('formula') else ''})"
        for e in row.get("evidence", ())
        if e.get("text")
    ]
    if items:
        yield from desk.say("Evidence:")
        yield from desk.bullets(items)


class Doubt(Arguments):
    finding: Annotated[int | None, Field(ge=1, le=99, description="Number of the finding that is doubted.")] = None
    text: Annotated[str, Field(max_length=400, description="What is doubted, in words.")] = ""


@capability(
    "A finding examined again",
    "I disagree with this finding, check it again.",
    "That finding is wrong.",
    "I do not believe that communication is exposed here.",
    "Are you sure that this diagnosis is right? I think it is something else.",
)
def doubt(desk: Desk, given: Doubt) -> Answer:
    """A finding or the verdict set against its evidence again: whether each number behind it was measured and holds."""
    found = yield from get(desk, "findings")
    rows = found.get("rows", [])
    text = given.text.lower()
    row = next((r for r in rows if r["finding"] == given.finding), None)
    if row is None and given.finding:
        raise ToolError(f"There is no finding {given.finding}; there are {len(rows)}.")
    if row is None:
        stems = [(len({w for w in r["title"].lower().split() if len(w) > 4 and w in text}), r) for r in rows]
        best = max(stems, key=lambda item: item[0], default=(0, None))
        row = best[1] if best[0] else None
    if row is not None:
        yield from desk.say(f"Finding {row['finding']}, {row['title']}: {row['insight']}")
        yield from evidence(desk, row)
        held = [e for e in row.get("evidence", ()) if e.get("origin") == "measured"]
        yield from desk.say(
            f"{'Its evidence is measured in this profile' if held else 'Its evidence is computed, not measured'}; "
            f"it stands "
            "unless one of these numbers is wrong. If the profile is not of the run you mean, upload another one."
        )
        return
    verdict = yield from get(desk, "bottleneck")
    yield from desk.say(
        f"The verdict is {verdict['primary']} with {words.percent(verdict['confidence_share'])} confidence: "
        f"{verdict['statement']}"
    )
    yield from evidence(desk, verdict)
    if rows:
        raise Missing(
            "Say which finding is meant, and it is examined against its evidence.",
            tuple(command(registry()["doubt"], {"finding": r["finding"]}) for r in rows[:3]),
        )
