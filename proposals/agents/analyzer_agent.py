"""The Analyzer as a language model: writes the four sections of the report in references to tool results.

The verdict and every number are those of the diagnosis; what cannot be resolved is sent back, and in the end its
sentence goes.  If too little is left, the built-in report is used.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.control import Cancel
from agent.events import RunEvent
from agent.limits import Limits
from agent.provider.base import Provider
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION
from proposals.agents.drafts import LEAST_LEFT, Draft, Line, Sources, drafted
from proposals.agents.toolbox import Agent
from proposals.agents.workbench import Workbench

AGENT: Agent = "analyzer"
#: The heading of `Diagnosis.report` of each field of `Report`.
_HEADINGS = {
    "experiment_details": DETAILS, "kpi_health": HEALTH, "ops_and_roofline": IDENTIFICATION, "correlation": CORRELATION,
}  # fmt: skip

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
        return {heading: getattr(self, field) for field, heading in _HEADINGS.items()}


@dataclass(frozen=True)
class Reported(Draft[Report]):
    """What the Analyzer came to.  sections: the report, by heading."""

    sections: dict[str, list[Line]]

    @property
    def claims(self) -> int:
        """References in it."""
        return sum(line.claims for lines in self.sections.values() for line in lines)


def report(
    bench: Workbench, provider: Provider, cancel: Cancel | None = None, limits: Limits | None = None
) -> Generator[RunEvent, None, Reported]:
    """The report by a model, with all that happens on the way; ends with one Final unless it was cancelled."""

    def check(answer: Report, sources: Sources) -> list[str]:
        wrong = [text for lines in answer.sections.values() for line in lines for text in sources.complaints(line)]
        return [*_verdict(answer, bench), *wrong]

    def mend(answer: Report, sources: Sources) -> tuple[Report | None, int]:
        return (None, 0) if _verdict(answer, bench) else _mended(answer, sources)

    own = bench.diagnosis.report
    instead = {field: list(own.get(heading, ())) for field, heading in _HEADINGS.items()}
    draft = yield from drafted(
        bench, AGENT, "Write the report on this run.", Report, check, mend,
        {"bottleneck": bench.diagnosis.bottleneck.primary, **instead}, provider, cancel, limits,
    )  # fmt: skip
    answer, found = draft.answer, draft.sources
    sections = {
        heading: [found.line(text) for text in answer.sections[heading]] if answer else list(map(Line, lines))
        for heading, lines in own.items()
    }
    return Reported(**vars(draft), sections=sections)


def _verdict(answer: Report, bench: Workbench) -> list[str]:
    primary = bench.diagnosis.bottleneck.primary
    if answer.bottleneck == primary:
        return []
    return [
        f"The report says the bottleneck is {answer.bottleneck}; the verdict is {primary}. It is computed: explain it, "
        "do not replace it."
    ]


def _mended(answer: Report, sources: Sources) -> tuple[Report | None, int]:
    """The rejected report without what cannot be resolved, and how many sentences went; None where too little is
    left."""
    mended = {name: [sources.mended(text) for text in getattr(answer, name)] for name in _HEADINGS}
    kept = {name: [text for text, _ in rows if text] for name, rows in mended.items()}
    before = sum(len(text) for texts in answer.sections.values() for text in texts)
    left = sum(len(text) for rows in kept.values() for text in rows)
    if not all(kept.values()) or left < LEAST_LEFT * before:
        return None, 0
    return answer.model_copy(update=dict(kept)), sum(count for rows in mended.values() for _, count in rows)
