"""The Proposal agent as a language model: three configurations with reasons, which code prices, checks and refuses.

What the model decides is which configurations, in which order, and why.  Every number stored with them comes from
`Pricer.evaluate`; an illegal one, one that does not fit, or one that is slower than the current configuration never
gets that far.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import formatting
from agent.control import Cancel
from agent.events import RunEvent, Stopped, ToolReturned
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, Usage, UserMessage
from agent.provider.base import Provider
from agent.schema import AnswerError, parse
from perfmodel.config import ConfigError, mesh_text
from proposals.agents import endpoint, grounding
from proposals.agents.cited import citation, is_similar
from proposals.agents.grounding import MOST_OF_A_HYPOTHESIS, Evidence, Support
from proposals.agents.initial_context import Looks, look
from proposals.agents.statements import Line, Statements, UnsupportedSentence, plain, removed_share
from proposals.agents.tools import Agent, toolbox
from proposals.agents.tools.common import MESH_WORDS
from proposals.agents.words import ratio
from proposals.agents.workbench import Workbench
from proposals.candidate import chips_ratio, is_same, keeps
from proposals.plan import Listed, ProposalPlan

AGENT: Agent = "proposer"
FIRST_LOOK: Looks = (("run", {}), ("bottleneck", {}), ("findings", {}), ("proposals", {}))
PROPOSALS = 3
#: Of a rejected answer, the most that may be struck; beyond it the built-in proposals are better.
MOST_STRUCK = 0.4

_Statement = Annotated[str, Field(min_length=3, max_length=900)]
_Size = Annotated[int, Field(ge=1, le=1_000_000)]


class Proposed(BaseModel):
    """One configuration, and why."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["recommendation", "safer", "bolder", "keep", "alternative"]
    title: Annotated[str, Field(min_length=3, max_length=160)] = Field(description="What it does, in a few words.")
    ici: Annotated[dict[str, _Size], Field(min_length=1)] = Field(description=MESH_WORDS)
    dcn: dict[str, _Size] | None = Field(None, description="Sizes across slices; the current ones unless given.")
    changes: dict[str, Any] = Field(
        default_factory=dict, description="Training keys that differ from the current configuration."
    )
    reasoning: Annotated[list[_Statement], Field(min_length=1, max_length=8)]
    trade_offs: Annotated[list[_Statement], Field(max_length=8)] = Field(default_factory=list)
    citations: Annotated[list[str], Field(max_length=8)] = Field(
        default_factory=list, description="Ids of records and passages that a tool returned."
    )
    confidence: float = Field(ge=0.0, le=1.0, description="That the step gets faster; a hypothesis at most 0.5.")

    @property
    def mesh(self) -> dict[str, dict[str, int]]:
        return {"ici": self.ici} if self.dcn is None else {"ici": self.ici, "dcn": self.dcn}

    @property
    def cited(self) -> list[str]:
        return list(dict.fromkeys(text.strip(" `[]") for text in self.citations))


class Proposing(BaseModel):
    """Three proposals, ranked."""

    model_config = ConfigDict(extra="forbid")

    proposals: Annotated[list[Proposed], Field(min_length=PROPOSALS, max_length=PROPOSALS)]


@dataclass(frozen=True)
class DraftProposal:
    """A proposal that passed.  plan: with the model's sentences, and every number from the performance model.

    lines: its title, reasons and trade-offs with the results behind them.  claimed: the confidence that the model says,
    which nothing shows as a number of the product.
    """

    plan: ProposalPlan
    lines: tuple[Line, ...]
    claimed: float


@dataclass(frozen=True)
class EvaluatedProposal:
    """What the Proposal agent came to.

    source: `model`, `fallback` where the built-in proposals stand, or `cancelled`.  claims: backed by tool results;
    struck: sentences taken out.  sentence: why the proposals are not the model's.  results: of its tools.
    """

    source: Literal["model", "fallback", "cancelled"]
    proposals: tuple[DraftProposal, ...] = ()
    claims: int = 0
    struck: int = 0
    sentence: str = ""
    results: tuple[ToolReturned, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    duration_s: float = 0.0


def propose(
    bench: Workbench, provider: Provider, cancel: Cancel | None = None, limits: Limits | None = None
) -> Generator[RunEvent, None, EvaluatedProposal]:
    """Three proposals by a model, with all that happens on the way; ends with one Final unless it was cancelled.

    Raises ConfigError where nothing can be priced.
    """
    tools = toolbox(bench, AGENT)
    shown, seen = yield from look(tools, FIRST_LOOK)
    prompt = files(__package__).joinpath("prompts/proposer.md").read_text("utf-8")
    messages: list[Message] = [SystemMessage(prompt), UserMessage("Propose three configurations."), *shown]
    judge = Judge(bench)

    def evidence(results: tuple[ToolReturned, ...]) -> Evidence:
        return Evidence.of((*seen, *results))

    def check(answer: Proposing, results: tuple[ToolReturned, ...]) -> list[str]:
        shown = evidence(results)
        return [*judge.refused(answer), *(item.message for item in judge.unbacked(answer, shown))]

    outcome: Outcome[Proposing] = yield from run(
        provider, messages, tools=tools, answer=Proposing, check=check, limits=limits or endpoint.limits(),
        cancel=cancel,
    )  # fmt: skip
    answer, struck = outcome.answer, 0
    evidence_shown = evidence(outcome.results)
    if answer is None and outcome.stopped is not None:
        if outcome.stopped.reason == "cancelled":
            return EvaluatedProposal("cancelled", sentence=outcome.stopped.sentence)
        answer, struck = _struck(outcome.stopped, judge, evidence_shown)
        said = answer.model_dump(mode="json") if answer else "The built-in reasoner's proposals are kept."
        yield outcome.final(said, "model" if answer else "fallback")
    spent = (evidence_shown.results, outcome.usage, outcome.cost_usd, outcome.duration_s)
    if answer is None:
        return EvaluatedProposal("fallback", (), 0, 0, outcome.stopped.sentence if outcome.stopped else "", *spent)
    argued = tuple(judge.argued(number, item, evidence_shown) for number, item in enumerate(answer.proposals, start=1))
    claims = sum(line.claims for item in argued for line in item.lines)
    return EvaluatedProposal("model", argued, claims, struck, "", *spent)


@dataclass(frozen=True)
class UnsupportedProposal:
    """What the tool results do not carry.  proposal: its place; cited: the id that nothing returned; wrong: a sentence
    of it; neither where too much confidence was claimed."""

    message: str
    proposal: int
    wrong: UnsupportedSentence | None = None
    cited: str = ""


class Judge:
    """Holds an answer against the performance model and against the tool results."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._priced: dict[str, ProposalPlan] = {}

    def priced(self, item: Proposed) -> ProposalPlan:
        """Raises ConfigError for what is no mesh or no training key."""
        key = json.dumps([item.mesh, item.changes], sort_keys=True, default=str)
        if key not in self._priced:
            self._priced[key] = self.bench.pricer.evaluate(item, self.bench.constraints)
        return self._priced[key]

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

    def _runs(self, plan: ProposalPlan) -> bool:
        return keeps(self.bench.config, plan)

    def _rules(self, item: Proposed, plan: ProposalPlan) -> Iterator[str]:
        keeps = self._runs(plan)
        if keeps != (item.kind == "keep"):
            yield (
                "is the current configuration, so its kind is keep."
                if keeps
                else "is of the kind keep, but changes the current configuration."
            )
        if keeps:
            return  # the current configuration may break a constraint; its card says so
        for broken in plan.violations:
            yield f"({mesh_text(plan.mesh)}) cannot be proposed: it breaks the rule {broken.rule}. {broken.reason}"
        gain, high = self._gain(plan)
        if not plan.violations and gain is not None and high < 1.0:
            yield (
                f"({mesh_text(plan.mesh)}) is predicted slower than the current configuration, {ratio(gain)} per token "
                "and at most "
                f"{ratio(high)}. Propose a configuration that may gain, or keep the current one."
            )

    def _gain(self, plan: ProposalPlan | Listed) -> tuple[float | None, float]:
        """(speed-up per token, the top of its 80 % interval); per chip where it takes fewer; None if unknown."""
        speedup, high = plan.predicted.speedup, plan.predicted.speedup_high80
        if speedup is None:
            return None, 0.0
        chips = chips_ratio(self.bench.config, plan.changes)
        return speedup / chips, max(speedup, high or 0.0) / chips

    def _beside_the_best(self, first: ProposalPlan) -> Iterator[str]:
        """Compares the first proposal with the current configuration and with the engine's best."""
        gain, high = self._gain(first)
        if gain is None:
            return
        if gain < 1.0 and not self._runs(first):
            yield (
                f"Proposal 1 is predicted at {ratio(gain)} per token, slower than the current configuration; the first "
                "proposal must not be."
            )
            return
        try:
            best = next(iter(self.bench.pricer.search(self.bench.constraints, 1)), None)
        except ConfigError:
            return
        most = self._gain(best)[0] if best is not None else None
        if best is not None and most is not None and high < most:
            yield (
                f"Proposal 1 is predicted at {ratio(gain)} per token, at most {ratio(high)}; `search` puts "
                f"{mesh_text(best.mesh)} first with {ratio(most)}. Put first what is not clearly slower."
            )

    def unbacked(self, answer: Proposing, evidence: Evidence) -> list[UnsupportedProposal]:
        """Sentences, citations and confidence that nothing carries."""
        unbacked = []
        for place, item in enumerate(answer.proposals):
            number = place + 1
            for wrong in self._proposal_statements(item).wrong(evidence, self.bench.rows):
                unbacked.append(UnsupportedProposal(f"Proposal {number}: {wrong.message}", place, wrong))
            for key in item.cited:
                if key not in evidence.records and key not in evidence.passages:
                    message = (
                        f"Proposal {number} cites `{key}`, which no tool result of this run has; `search_history`, "
                        "`similar_runs` and `search_knowledge` return what can be cited."
                    )
                    unbacked.append(UnsupportedProposal(message, place, cited=key))
            if item.confidence > MOST_OF_A_HYPOTHESIS and self.support(item, evidence) == "hypothesis":
                claimed, most = map(formatting.probability, (item.confidence, MOST_OF_A_HYPOTHESIS))
                message = (
                    f"Proposal {number} cites no record in which such a change was measured to be faster, so it is a "
                    f"hypothesis, and claims {claimed}: claim at most {most}, or cite such a record."
                )
                unbacked.append(UnsupportedProposal(message, place))
        return unbacked

    def _proposal_statements(self, item: Proposed) -> Statements:
        """Title, reasons and trade-offs, under the mesh that they speak of."""
        try:
            mesh = self.priced(item).mesh
        except ConfigError:
            mesh = item.mesh
        return Statements.of([(mesh_text(mesh), [item.title, *item.reasoning, *item.trade_offs])])

    def support(self, item: Proposed, evidence: Evidence) -> Support:
        """`proven` where it cites a record, returned in this run, in which such a change was measured to be faster."""
        faster = [key for key in item.cited if evidence.outcomes.get(key) == "faster"]
        records = (self.bench.retrieval.record(key) for key in faster)
        alike = any(record is not None and is_similar(record, item, self.bench) for record in records)
        return "proven" if alike else "hypothesis"

    def argued(self, number: int, item: Proposed, evidence: Evidence) -> DraftProposal:
        """The proposal with its numbers from the performance model, and what backs its sentences."""
        priced = self.priced(item)
        support = self.support(item, evidence)
        cited = [cite for key in item.cited if (cite := citation(self.bench.retrieval, key)) is not None]
        plan = replace(
            priced,
            rank=number,
            kind=item.kind,
            title=plain(item.title) if item.title else priced.title,
            reasoning=tuple(map(plain, item.reasoning)),
            trade_offs=tuple(map(plain, item.trade_offs)) or priced.trade_offs,
            citations=tuple(cited) or priced.citations,
            support=support,
        )
        claimed = grounding.capped_confidence(item.confidence, support)
        return DraftProposal(plan, tuple(self._proposal_statements(item).backed(evidence)), claimed)


def _struck(stopped: Stopped, judge: Judge, evidence: Evidence) -> tuple[Proposing | None, int]:
    """The rejected answer without what nothing backs, and how many sentences and citations that was.

    None where a configuration is refused, where a proposal is left without a reason, or where too little is left.
    """
    if stopped.reason != "rejected" or not stopped.last_answer:
        return None, 0
    try:
        answer = parse(stopped.last_answer, Proposing)
    except AnswerError:
        return None, 0
    if judge.refused(answer):
        return None, 0
    wrong = judge.unbacked(answer, evidence)
    kept = []
    for place, item in enumerate(answer.proposals):
        own = [item for item in wrong if item.proposal == place]
        mended = _mended(item, judge, own)
        if mended is None:
            return None, 0
        kept.append(mended)
    left = Proposing.model_construct(proposals=kept)
    if any(item.wrong for item in judge.unbacked(left, evidence)):
        return None, 0  # what is left leaned on what was taken out
    return left, len({(w.proposal, w.wrong.start) if w.wrong else (w.proposal, w.cited) for w in wrong})


def _mended(item: Proposed, judge: Judge, wrong: Sequence[UnsupportedProposal]) -> Proposed | None:
    said = judge._proposal_statements(item)
    sentences = [item.wrong for item in wrong if item.wrong is not None]
    if any(item.line is None for item in sentences) or removed_share(sentences, said.text) > MOST_STRUCK:
        return None
    lines = said.without(sentences)
    reasons = [text for text in lines[1 : 1 + len(item.reasoning)] if text]
    if not reasons:
        return None
    gone = {item.cited for item in wrong if item.cited}
    return item.model_copy(
        update={
            "title": lines[0] or judge.priced(item).title,
            "reasoning": reasons,
            "trade_offs": [text for text in lines[1 + len(item.reasoning) :] if text],
            "citations": [key for key in item.cited if key not in gone],
        }
    )
