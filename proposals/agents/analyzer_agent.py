"""The Analyzer as a language model: writes the four sections of the report from what the tools return.

The verdict and every number are those of the diagnosis; what the model writes is checked against the tool results, sent
back with what is wrong, and struck in the end.  If too little is left, the built-in report is used.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from importlib.resources import files
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
from proposals.agents.first_look import Looks, look
from proposals.agents.grounding import Evidence
from proposals.agents.statements import Line, Statements, Wrong, removed_share
from proposals.agents.tools import Agent, toolbox
from proposals.agents.workbench import Workbench

AGENT: Agent = "analyzer"
FIRST_LOOK: Looks = (("run", {}), ("kpis", {}), ("bottleneck", {}), ("findings", {}), ("collectives", {}))
#: Of a rejected report, the most that may be struck; beyond it the built-in one is better.
MOST_STRUCK = 0.4

_Statement = Annotated[str, Field(min_length=3, max_length=900)]
_Section = Annotated[list[_Statement], Field(min_length=1, max_length=24)]


class Report(BaseModel):
    """The report, section by section; each statement one or two sentences."""

    model_config = ConfigDict(extra="forbid")

    bottleneck: Literal["compute", "memory", "communication", "input", "host", "idle", "unknown"] = Field(
        description="The primary one, as the tool `bottleneck` has it."
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
    claims: backed by tool results; struck: sentences taken out.  sentence: why it is not, or not wholly, the model's.
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
    prompt = files(__package__).joinpath("prompts/analyzer.md").read_text("utf-8")
    asked = UserMessage("Write the report on this run.")
    messages: list[Message] = [SystemMessage(prompt), asked, *shown]

    def evidence(results: tuple[ToolReturned, ...]) -> Evidence:
        return Evidence.of((*seen, *results))

    def check(answer: Report, results: tuple[ToolReturned, ...]) -> list[str]:
        wrong = Statements.of(answer.sections.items()).wrong(evidence(results), bench.rows)
        return [*_verdict(answer, bench), *(item.message for item in wrong)]

    outcome: Outcome[Report] = yield from run(
        provider, messages, tools=tools, answer=Report, check=check, limits=limits or endpoint.limits(), cancel=cancel
    )
    answer, wrong = outcome.answer, list[Wrong]()
    if answer is None and outcome.stopped is not None:
        if outcome.stopped.reason == "cancelled":
            return Reported("cancelled", sentence=outcome.stopped.sentence)
        answer, wrong = _struck(outcome.stopped, evidence(outcome.results), bench)
        final = (answer or built_in(bench)).model_dump(mode="json")
        yield outcome.final(final, "model" if answer else "fallback")
    spent = (outcome.usage, outcome.cost_usd, outcome.duration_s)
    said = outcome.stopped.sentence if outcome.stopped is not None else ""
    if answer is None:
        own = {heading: [Line(text) for text in lines] for heading, lines in bench.diagnosis.report.items()}
        return Reported("fallback", own, 0, 0, said, *spent)
    lines = iter(Statements.of(answer.sections.items()).backed(evidence(outcome.results)))
    sections = {heading: [next(lines) for _ in texts] for heading, texts in answer.sections.items()}
    claims = sum(line.claims for section in sections.values() for line in section)
    struck = len({(item.start, item.end) for item in wrong})
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
        f"The report says the bottleneck is {answer.bottleneck}; the tool `bottleneck` says {primary}. The verdict is "
        "computed: explain it, do not replace it."
    ]


def _struck(stopped: Stopped, evidence: Evidence, bench: Workbench) -> tuple[Report | None, list[Wrong]]:
    """The rejected report without what nothing backs; None where its verdict is wrong, or too little is left."""
    if stopped.reason != "rejected" or not stopped.last_answer:
        return None, []
    try:
        answer = parse(stopped.last_answer, Report)
    except AnswerError:
        return None, []
    said = Statements.of(answer.sections.items())
    wrong = said.wrong(evidence, bench.rows)
    if _verdict(answer, bench) or removed_share(wrong, said.text) > MOST_STRUCK:
        return None, []
    left = iter(said.without(wrong))
    kept = {
        heading: [text for text in (next(left) for _ in texts) if text] for heading, texts in answer.sections.items()
    }
    if not all(kept.values()):
        return None, []
    mended = Report.model_construct(
        bottleneck=answer.bottleneck,
        experiment_details=kept[DETAILS],
        kpi_health=kept[HEALTH],
        ops_and_roofline=kept[IDENTIFICATION],
        correlation=kept[CORRELATION],
    )
    if Statements.of(mended.sections.items()).wrong(evidence, bench.rows):
        return None, []  # what is left leaned on what was taken out
    return mended, wrong
