"""The Analyzer as a language model: writes the four sections of the report in references to tool results.

The verdict and every number are those of the diagnosis; what cannot be resolved is sent back, and in the end its
sentence goes.  If too little is left, the built-in report is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from agent.control import Cancel
from agent.events import RunEvent
from agent.limits import Limits
from agent.provider.base import Provider
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION
from proposals.agents.drafts import Draft, Line, Written, drafted
from proposals.agents.toolbox import Agent
from proposals.agents.workbench import Workbench

AGENT: Agent = "analyzer"
#: The heading of `Diagnosis.report` of each field of `Report`.
_HEADINGS = {
    "experiment_details": DETAILS, "kpi_health": HEALTH, "ops_and_roofline": IDENTIFICATION, "correlation": CORRELATION,
}  # fmt: skip

_Statement = Annotated[str, Field(min_length=3, max_length=900)]
_Section = Annotated[list[_Statement], Field(min_length=1, max_length=24)]


class Report(Written):
    """The report, section by section; each statement one or two sentences."""

    bottleneck: Literal["compute", "memory", "communication", "input", "host", "idle", "unknown"] = Field(
        description="The primary one, as the verdict has it."
    )
    experiment_details: _Section = Field(description="1. Experiment details.")
    kpi_health: _Section = Field(description="2. KPIs and initial hypothesis.")
    ops_and_roofline: _Section = Field(description="3. Ops and roofline.")
    correlation: _Section = Field(description="4. Correlation and structured analysis.")

    def mapped(self, change: Callable[[str], str]) -> Report:
        return self.model_copy(update={name: [*filter(None, map(change, getattr(self, name)))] for name in _HEADINGS})

    @property
    def sections(self) -> dict[str, list[str]]:
        """Under the headings of `Diagnosis.report`."""
        return {heading: getattr(self, field) for field, heading in _HEADINGS.items()}


@dataclass(frozen=True)
class Reported(Draft[Report]):
    """What the Analyzer came to.  sections: the report, by heading."""

    sections: dict[str, list[Line]]


def report(
    bench: Workbench, provider: Provider, cancel: Cancel | None = None, limits: Limits | None = None
) -> Generator[RunEvent, None, Reported]:
    """The report by a model, with all that happens on the way; ends with one Final unless it was cancelled."""

    own = bench.diagnosis.report
    instead = {field: list(own.get(heading, ())) for field, heading in _HEADINGS.items()}
    draft = yield from drafted(
        bench, AGENT, "Write the report on this run.", Report, lambda answer, _: _verdict(answer, bench),
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
