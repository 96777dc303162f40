"""The Proposal agent as a language model: up to three configurations with reasons, priced, checked or refused by code.

What the model decides is which configurations, in which order, and why.  Every number stored with them comes from
`Pricer.evaluate`; an illegal one, one that does not fit, or one that is slower than the current configuration never
gets that far.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

import formatting
from agent.control import Cancel
from agent.events import RunEvent
from agent.limits import Limits
from agent.provider.base import Provider
from history.case import case_of
from history.record import Record
from history.similarity import most_similar
from perfmodel.config import ConfigError, mesh_text
from proposals.agents.drafts import Draft, Line, Sources, Written, drafted
from proposals.agents.retrieval import Retrieval
from proposals.agents.toolbox import Agent
from proposals.agents.tools.shared import Configuration
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, MeshAndChanges, is_same, keeps
from proposals.plan import Citation, Listed, ProposalPlan
from proposals.proposer.build import citation
from proposals.proposer.precedents import case_of_change, citation_of

AGENT: Agent = "proposer"
PROPOSALS = 3
Support = Literal["proven", "hypothesis"]

_Statement = Annotated[str, Field(min_length=3, max_length=900)]


class Proposed(Configuration):
    """One configuration, and why."""

    kind: Literal["recommendation", "safer", "bolder", "keep", "alternative"]
    title: Annotated[str, Field(max_length=160)] = Field(description="What it does, in a few words.")
    reasoning: Annotated[list[_Statement], Field(min_length=1, max_length=8)]
    trade_offs: Annotated[list[_Statement], Field(max_length=8)] = Field(default_factory=list)
    citations: Annotated[list[str], Field(max_length=8)] = Field(
        default_factory=list, description="Ids of records and passages that a tool returned."
    )

    @property
    def cited(self) -> list[str]:
        return list(dict.fromkeys(text.strip(" `[]") for text in self.citations))


class Proposing(Written):
    """Up to three proposals, ranked."""

    proposals: Annotated[list[Proposed], Field(min_length=1, max_length=PROPOSALS)]

    def mapped(self, change: Callable[[str], str]) -> Proposing:
        rows = [
            item.model_copy(
                update={"title": change(item.title)}
                | {name: [*filter(None, map(change, getattr(item, name)))] for name in ("reasoning", "trade_offs")}
            )
            for item in self.proposals
        ]
        return self.model_copy(update={"proposals": rows})


@dataclass(frozen=True)
class DraftProposal:
    """A proposal that passed.  plan: with the model's sentences, and every number from the performance model.

    lines: its title, reasons and trade-offs with the results they refer to.
    """

    plan: ProposalPlan
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class EvaluatedProposal(Draft[Proposing]):
    """What the Proposal agent came to."""

    proposals: tuple[DraftProposal, ...]


def propose(
    bench: Workbench, provider: Provider, cancel: Cancel | None = None, limits: Limits | None = None
) -> Generator[RunEvent, None, EvaluatedProposal]:
    """Three proposals by a model, with all that happens on the way; ends with one Final unless it was cancelled.

    Raises ConfigError where nothing can be priced.
    """
    judge = Judge(bench)

    draft = yield from drafted(
        bench, AGENT, "Propose up to three configurations.", Proposing, lambda answer, _: judge.refused(answer),
        "The built-in proposals are kept.", provider, cancel, limits, judge.unbacked,
    )  # fmt: skip
    listed = draft.answer.proposals if draft.answer is not None else []
    argued = tuple(judge.argued(number, item, draft.sources) for number, item in enumerate(listed, start=1))
    return EvaluatedProposal(**vars(draft), proposals=argued)


def _texts(item: Proposed) -> list[str]:
    return [item.title, *item.reasoning, *item.trade_offs]


class Judge:
    """Holds an answer against the performance model, the rules, and the records that it cites."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench

    def priced(self, item: Proposed) -> ProposalPlan:
        """Raises ConfigError for what is no mesh or no training key."""
        return self.bench.pricer.evaluate(item.candidate(self.bench.config), self.bench.constraints)

    def refused(self, answer: Proposing) -> list[str]:
        """Why it cannot be shown, whatever is struck: rules, memory, constraints, doubles, and what is slower."""
        told: list[str] = []
        plans: list[ProposalPlan | None] = []
        for number, item in enumerate(answer.proposals, start=1):
            try:
                plan = self.priced(item)
            except ConfigError as error:
                told.append(f"Proposal {number} is not a valid configuration: {error}")
                plans.append(None)
                continue
            plans.append(plan)
            told += [f"Proposal {number} {text}" for text in self._rules(item, plan)]
            told += [
                f"Proposal {number} is proposal {earlier} again: the same mesh and the same settings. Propose another."
                for earlier, other in enumerate(plans[:-1], start=1)
                if other is not None and is_same(self.bench.config, plan, other)
            ]
        kinds = [item.kind for item in answer.proposals]
        if kinds[0] not in ("recommendation", "keep"):
            told.append("The first proposal is what to try first: its kind is recommendation, or keep.")
        if "recommendation" in kinds[1:]:
            told.append("Only the first proposal may be of the kind recommendation.")
        if plans[0] is not None and not plans[0].violations:
            told += self._beside_the_best(plans[0])
        return told

    def _rules(self, item: Proposed, plan: ProposalPlan) -> Iterator[str]:
        is_current = keeps(self.bench.config, plan)
        if is_current != (item.kind == "keep"):
            yield (
                "is the current configuration, so its kind is keep."
                if is_current
                else "is of the kind keep, but changes the current configuration."
            )
        if is_current:
            return  # the current configuration may break a constraint; its card says so
        for broken in plan.violations:
            yield f"({mesh_text(plan.mesh)}) cannot be proposed: it breaks the rule {broken.rule}. {broken.reason}"
        gain, high = self._gain(plan)
        if not plan.violations and gain is not None and high < 1.0:
            yield (
                f"({mesh_text(plan.mesh)}) is predicted slower than the current configuration, {_times(gain)} per "
                f"token and at most {_times(high)}. Propose a configuration that may gain, or keep the current one."
            )

    def _gain(self, plan: ProposalPlan | Listed) -> tuple[float | None, float]:
        """(speed-up per token, the top of its 80 % interval); None if unknown."""
        speedup, high = plan.predicted.speedup, plan.predicted.speedup_high80
        if speedup is None:
            return None, 0.0
        return speedup, max(speedup, high or 0.0)

    def _beside_the_best(self, first: ProposalPlan) -> Iterator[str]:
        """Compares the first proposal with the current configuration and with the built-in first."""
        gain, high = self._gain(first)
        if gain is None:
            return
        if gain < 1.0 and not keeps(self.bench.config, first):
            yield (
                f"Proposal 1 is predicted at {_times(gain)} per token, slower than the current configuration; the "
                "first proposal must not be."
            )
            return
        try:
            best = self.bench.pricer.propose(self.bench.constraints).proposals[0]
        except ConfigError:
            return
        most = self._gain(best)[0]
        if most is not None and high < most:
            yield (
                f"Proposal 1 is predicted at {_times(gain)} per token, at most {_times(high)}; the built-in first is "
                f"{mesh_text(best.mesh)} with {_times(most)}. Put first what is not clearly slower."
            )

    def unbacked(self, answer: Proposing, sources: Sources) -> Iterator[str]:
        """Yield what is wrong with citations."""
        known = cited(sources)
        for number, item in enumerate(answer.proposals, start=1):
            for key in item.cited:
                if key not in known:
                    yield (
                        f"Proposal {number} cites `{key}`, which no tool result of this run has; `history` and "
                        "`knowledge` return what can be cited."
                    )

    def support(self, item: Proposed, sources: Sources) -> Support:
        """`proven` where it cites a record, returned in this run, in which such a change was measured to be faster."""
        known = cited(sources)
        records = (self.bench.retrieval.record(key) for key in item.cited if known.get(key) == "faster")
        one = item.candidate(self.bench.config)
        alike = any(record is not None and is_similar(record, one, self.bench) for record in records)
        return "proven" if alike else "hypothesis"

    def argued(self, number: int, item: Proposed, sources: Sources) -> DraftProposal:
        """The proposal with its numbers from the performance model, and what its sentences refer to."""
        priced = self.priced(item)
        known = cited(sources)
        quoted = [cited_as(self.bench.retrieval, key) for key in item.cited if key in known]
        plan = replace(
            priced,
            rank=number,
            kind=item.kind,
            title=sources.line(item.title).text or priced.title,
            reasoning=tuple(map(sources.sentence, item.reasoning)),
            trade_offs=tuple(map(sources.sentence, item.trade_offs)) or priced.trade_offs,
            citations=tuple(one for one in quoted if one is not None) or priced.citations,
            support=self.support(item, sources),
        )
        return DraftProposal(plan, tuple(map(sources.line, _texts(item))))


def _times(speedup: float) -> str:
    return formatting.plain(speedup, "speedup")


def cited(sources: Sources) -> dict[str, str]:
    """Return what tools returned that can be cited: ids of passages, and of records with their outcome."""
    results = [result for result in sources.results.values() if isinstance(result, dict)]
    rows = [row for result in results for key in ("records", "passages") for row in result.get(key, ())]
    return {row["id"]: row.get("outcome", "") for row in rows}


def cited_as(around: Retrieval, key: str) -> Citation | None:
    """Return what a model cites by id, as the proposer cites it; None where the team may see no such thing."""
    if record := around.record(key):
        return citation_of(record)
    passage = around.passage(key)
    return citation(passage, passage.key) if passage else None


def is_similar(record: Record, item: MeshAndChanges, of: Workbench) -> bool:
    """Return whether a record is alike enough to what a configuration changes to be shown beside it
    (`history.similarity`)."""
    whole = Candidate({**of.config.mesh.to_json(), **item.mesh}, item.changes)
    ours = case_of_change(of.config, of.diagnosis, whole)
    return bool(most_similar([case_of(record)], ours))
