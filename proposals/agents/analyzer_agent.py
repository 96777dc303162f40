"""The Analyzer as a language model: writes the four sections of the report in references to tool results.

The verdict and every number are those of the diagnosis; what cannot be resolved is sent back, and in the end its
sentence goes.  If too little is left, the built-in report is used.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.control import Cancel
from agent.events import RunEvent, Stopped, ToolReturned
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, Usage, UserMessage
from agent.provider.base import Provider
from agent.schema import AnswerError, parse
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION
from proposals.agents import endpoint
from proposals.agents.drafts import REPAIRS, Line, Sources, prompt
from proposals.agents.initial_context import Looks, look
from proposals.agents.toolbox import Agent, toolbox
from proposals.agents.workbench import Workbench

AGENT: Agent = "analyzer"
FIRST_LOOK: Looks = tuple(
    ("look", {"part": part}) for part in ("run", "kpis", "breakdown", "verdict", "findings", "memory")
)
#: Of a rejected report, what must be left of its characters; below, the built-in one is better.
LEAST_LEFT = 0.6

_Statement = Annotated[str, Field(min_length=3, max_length=900)]
_Section = Annotated[list[_Statement], Field(min_length=1, max_length=24)]


class Report(BaseModel):
    """The report, section by section; each statement one or two sentences."""

    model_config = ConfigDict(extra="forbid")

    bottleneck: Literal["compute", "memory", "communication", "input", "host", "idle", "unknown"] = Field(
        description="The primary one, as the verdict has it."
    )
    experiment_details: _Section = Field(description="1. Experiment details.")
    kpi_health: _Section = Field(description="2. KPIs and initial hypothesis.")
    ops_and_roofline: _Section = Field(description="3. Ops and roofline.")
    correlation: _Section = Field(description="4. Correlation and structured analysis.")

    @property
    def sections(self) -> dict[str, list[str]]:
        """Under the headings of `Diagnosis.report`."""
        return {
            DETAILS: self.experiment_details,
            HEALTH: self.kpi_health,
            IDENTIFICATION: self.ops_and_roofline,
            CORRELATION: self.correlation,
        }


@dataclass(frozen=True)
class Reported:
    """What the Analyzer came to.

    source: `model`, `fallback` where the built-in report stands, or `cancelled`.  sections: the report, by heading.
    claims: references in it; struck: sentences taken out.  sentence: why it is not, or not wholly, the model's.
    """

    source: Literal["model", "fallback", "cancelled"]
    sections: dict[str, list[Line]] = field(default_factory=dict)
    claims: int = 0
    struck: int = 0
    sentence: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    duration_s: float = 0.0


def report(
    bench: Workbench, provider: Provider, cancel: Cancel | None = None, limits: Limits | None = None
) -> Generator[RunEvent, None, Reported]:
    """The report by a model, with all that happens on the way; ends with one Final unless it was cancelled."""
    tools = toolbox(bench, AGENT)
    shown, seen = yield from look(tools, FIRST_LOOK)
    messages: list[Message] = [SystemMessage(prompt(AGENT)), UserMessage("Write the report on this run."), *shown]

    def sources(results: tuple[ToolReturned, ...]) -> Sources:
        return Sources.of((*seen, *results))

    def check(answer: Report, results: tuple[ToolReturned, ...]) -> list[str]:
        found = sources(results)
        wrong = [text for lines in answer.sections.values() for line in lines for text in found.complaints(line)]
        return [*_verdict(answer, bench), *wrong]

    limits = limits or endpoint.limits()
    limits = replace(limits, repairs=min(limits.repairs, REPAIRS))
    outcome: Outcome[Report] = yield from run(
        provider, messages, tools=tools, answer=Report, check=check, limits=limits, cancel=cancel
    )
    answer, struck = outcome.answer, 0
    found = sources(outcome.results)
    if answer is None and outcome.stopped is not None:
        if outcome.stopped.reason == "cancelled":
            return Reported("cancelled", sentence=outcome.stopped.sentence)
        answer, struck = _mended(outcome.stopped, found, bench)
        final = (answer or built_in(bench)).model_dump(mode="json")
        yield outcome.final(final, "model" if answer else "fallback")
    spent = (outcome.usage, outcome.cost_usd, outcome.duration_s)
    said = outcome.stopped.sentence if outcome.stopped is not None else ""
    if answer is None:
        own = {heading: [Line(text) for text in lines] for heading, lines in bench.diagnosis.report.items()}
        return Reported("fallback", own, 0, 0, said, *spent)
    sections = {heading: [found.line(text) for text in texts] for heading, texts in answer.sections.items()}
    claims = sum(line.claims for section in sections.values() for line in section)
    return Reported("model", sections, claims, struck, "", *spent)


def built_in(bench: Workbench) -> Report:
    """The report that stands without a model."""
    described = bench.diagnosis.report
    return Report.model_construct(
        bottleneck=bench.diagnosis.bottleneck.primary,
        experiment_details=list(described.get(DETAILS, ())),
        kpi_health=list(described.get(HEALTH, ())),
        ops_and_roofline=list(described.get(IDENTIFICATION, ())),
        correlation=list(described.get(CORRELATION, ())),
    )


def _verdict(answer: Report, bench: Workbench) -> list[str]:
    primary = bench.diagnosis.bottleneck.primary
    if answer.bottleneck == primary:
        return []
    return [
        f"The report says the bottleneck is {answer.bottleneck}; the verdict is {primary}. It is computed: explain it, "
        "do not replace it."
    ]


def _mended(stopped: Stopped, sources: Sources, bench: Workbench) -> tuple[Report | None, int]:
    """The rejected report without what cannot be resolved, and how many sentences went; None where its verdict is
    wrong, or too little is left."""
    if stopped.reason != "rejected" or not stopped.last_answer:
        return None, 0
    try:
        answer = parse(stopped.last_answer, Report)
    except AnswerError:
        return None, 0
    fields = ("experiment_details", "kpi_health", "ops_and_roofline", "correlation")
    mended = {name: [sources.mended(text) for text in getattr(answer, name)] for name in fields}
    kept = {name: [text for text, _ in rows if text] for name, rows in mended.items()}
    before = sum(len(text) for name in fields for text in getattr(answer, name))
    left = sum(len(text) for rows in kept.values() for text in rows)
    if _verdict(answer, bench) or not all(kept.values()) or left < LEAST_LEFT * before:
        return None, 0
    gone = sum(count for rows in mended.values() for _, count in rows)
    return answer.model_copy(update=dict(kept)), gone
