"""What the language model does with a run: its Analyzer writes the report, its Proposal agent proposes.

Every step of theirs is an Event.  What they come to is stored beside what the built-in rules said, never instead.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone

from agent.control import Cancel
from agent.events import RunEvent, TextDelta, ToolReturned, drive
from agent.provider.base import Provider
from experiments.models import Run
from experiments.services import events
from formatting.text import clean_json
from perfmodel.config import ConfigError
from proposals.agents import analyzer_agent, endpoint, proposal_agent
from proposals.agents.drafts import Line
from proposals.agents.proposal_agent import EvaluatedProposal
from proposals.agents.retrieval import Unavailable
from proposals.agents.toolbox import Agent
from proposals.agents.workbench import Workbench
from proposals.models import Consultation, PlanRecord
from proposals.services import checks, consulting, plans, recording, stored

#: While a model is waited for: how often it is looked whether what it does is still wanted.
LOOK_EVERY_S = 0.5
OVERTAKEN = "A newer analysis of this experiment has started, so the model stopped this one."

T = TypeVar("T")


class Refused(Exception):
    """What the model proposed did not pass the last gate.  The text is a sentence for the user."""


def consult(pk: int) -> None:
    """Let Analyzer and Proposal agent read the run; returns at once where it has ended or a live worker has it."""
    made = consulting.CONSULTATIONS.take(pk, _fail, "run__experiment", "run__profile", "created_by")
    if made is None:
        return
    work = Work(made)
    expected = (Unavailable, ConfigError, Refused)
    with consulting.CONSULTATIONS.doing(made, _fail, expected, (LOOK_EVERY_S, work.look)):
        _work(work)


def _fail(made: Consultation, reason: str) -> None:
    consulting.end(made, Consultation.Status.FAILED, f"{reason} The built-in text is shown.")


@dataclass
class Work:
    """A consultation in the hands of a worker.  events: of tool results, by agent's result id."""

    made: Consultation
    cancel: Cancel = field(default_factory=Cancel)
    events: dict[str, int] = field(default_factory=dict)

    def drive(self, steps: Generator[RunEvent, None, T], actor: Agent) -> T:
        """Let an agent work, each step an Event; returns what it came to."""
        self.events = {}

        def store(event: RunEvent) -> None:
            if isinstance(event, TextDelta):
                return
            row = recording.store(self.made.run.experiment_id, event, actor, run=self.made.run)
            if isinstance(event, ToolReturned):
                self.events[event.result_id] = row.pk

        return drive(steps, store)

    def look(self) -> None:
        """Is it still ours, and still wanted?"""
        if not consulting.is_wanted(self.made):
            self.cancel.set()

    def lines(self, rows: Sequence[Line]) -> list[dict[str, Any]]:
        """Lines as they are stored, with the Events behind them."""
        return [
            {
                "text": line.text,
                "events": [self.events[result] for result in line.results if result in self.events],
            }
            for line in rows
        ]


def _work(work: Work) -> None:
    made = work.made
    if consulting.is_overtaken(made):
        consulting.end(made, Consultation.Status.CANCELLED, OVERTAKEN)
        return
    analyst = endpoint.provider(analyzer_agent.AGENT)
    proposer = endpoint.provider(proposal_agent.AGENT)
    if analyst is None or proposer is None:
        raise Unavailable("The language model is no longer configured.")
    base = _built_in_plan(made.run)
    if base is None:
        raise Unavailable("This run has no proposals to compare with.")
    bench = stored.workbench(made.run.experiment, None, base)
    if not made.report:  # else an earlier worker got so far before it died
        _report(work, bench, analyst)
    if not work.cancel.is_set() and not made.proposals and not base.value.not_modelled:
        _propose(work, bench, base, proposer)
    if not work.cancel.is_set():
        consulting.end(made, Consultation.Status.DONE)
    elif consulting.is_overtaken(made):
        consulting.end(made, Consultation.Status.CANCELLED, OVERTAKEN)


def _built_in_plan(run: Run) -> PlanRecord | None:
    """The newest of the run that no model wrote."""
    plans = PlanRecord.objects.filter(run=run).order_by("-pk")
    return next((plan for plan in plans if not plan.value.author), None)


def _report(work: Work, bench: Workbench, provider: Provider) -> None:
    made = work.made
    report = work.drive(analyzer_agent.report(bench, provider, work.cancel), "analyzer")
    if report.source == "cancelled":
        return
    sections = {heading: work.lines(lines) for heading, lines in report.sections.items()}
    made.report = clean_json(
        {
            **_outcome_data(report, provider.model),
            "sections": sections if report.source == "model" else {},
        }
    )
    _count(made, report)
    if not consulting.keep(made, report=made.report, tokens=made.tokens, cost_usd=made.cost_usd):
        work.cancel.set()


def _propose(work: Work, bench: Workbench, base: PlanRecord, provider: Provider) -> None:
    made = work.made
    proposed = work.drive(proposal_agent.propose(bench, provider, work.cancel), "proposer")
    if proposed.source == "cancelled":
        return
    lines = {str(item.plan.rank): work.lines(item.lines) for item in proposed.proposals}
    made.proposals = clean_json({**_outcome_data(proposed, provider.model), "lines": lines})
    _count(made, proposed)
    values = {"proposals": made.proposals, "tokens": made.tokens, "cost_usd": made.cost_usd}
    with transaction.atomic():
        events.lock(made.run.experiment_id)
        wanted = consulting.is_wanted(made)
        if wanted and proposed.source == "model":
            values["plan"] = _store(made, proposed, base, provider.model)
        if not wanted or not consulting.keep(made, **values):
            work.cancel.set()
            transaction.set_rollback(True)


def _store(made: Consultation, proposed: EvaluatedProposal, base: PlanRecord, model: str) -> PlanRecord:
    """The model's proposals as a plan of their own, through the same gate as any other."""
    plan = replace(base.value, proposals=tuple(item.plan for item in proposed.proposals), author=model)
    record = plans.store(
        made.run, plan, constraints=base.constraints, precedents=base.precedents, again=True, user=made.created_by,
        said_of={"consultation": made.pk},
        config=base.config,
    )  # fmt: skip
    verdict = checks.check(record)
    if verdict.broken:
        raise Refused(f"The model's proposals did not pass the final check: {'; '.join(verdict.broken)}.")
    checks.store(made.run, verdict)
    return record


def _outcome_data(outcome: analyzer_agent.Reported | EvaluatedProposal, model: str) -> dict[str, Any]:
    return {
        "source": outcome.source,
        "model": model,
        "struck": outcome.struck,
        "sentence": outcome.sentence,
        "tokens": outcome.outcome.usage.tokens,
        "cost_usd": outcome.outcome.cost_usd,
        "duration_s": round(outcome.outcome.duration_s, 3),
        "at": timezone.now().isoformat(),
    }


def _count(made: Consultation, outcome: analyzer_agent.Reported | EvaluatedProposal) -> None:
    spent = outcome.outcome
    made.tokens = (made.tokens or 0) + spent.usage.tokens or None
    if spent.cost_usd is not None:
        made.cost_usd = (made.cost_usd or 0.0) + spent.cost_usd
