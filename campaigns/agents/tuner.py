"""The Tuner: a language model that asks for the next trials of a campaign, each with a sentence.

What it asks for is tried only where the rules let it be tried, and its numbers are the built-in acquisition's; its
sentence is shown only where its references lead to results.  Otherwise the built-in choice is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.control import Cancel
from agent.events import RunEvent, ToolReturned
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, Usage, UserMessage
from agent.provider.base import Provider
from agent.tools import AnswerError, NoArguments, Tool, parse
from campaigns.agents.view import Question, Tools
from campaigns.engine.acquisition import ScoredCandidate
from campaigns.engine.requested_trials import Refused
from experiments.sentences import Sentence, join, say
from perfmodel.config import ConfigError, mesh_text
from proposals.agents.drafts import Sources, look, prompt
from proposals.agents.tools.shared import Configuration

AGENT = "tuner"
#: Trials that one answer may ask for.
MOST_WISHES = 8
#: Of one planning step: a trial is cheap to choose and dear to run, but nobody waits minutes for a choice.
MOST_TURNS, MOST_CALLS, MOST_S = 6, 12, 120.0

#: Tokens below which no request is worth sending.
LEAST_TOKENS = 4_000
NO_MORE = "The language model requested no more trials."
#: Characters of a refusal that are kept.
MOST_SAID = 300


class TrialRequest(Configuration):
    """One trial, and why."""

    reason: Annotated[str, Field(min_length=3, max_length=300)] = Field(description="Why, in one sentence.")


class TrialRequests(BaseModel):
    """Requested trials, the most valuable first."""

    model_config = ConfigDict(extra="forbid")

    trials: Annotated[list[TrialRequest], Field(max_length=MOST_WISHES)]


@dataclass(frozen=True)
class Granted:
    """A requested trial that is allowed.  candidate: its index; reason: empty if unsupported."""

    candidate: int
    reason: str


@dataclass(frozen=True)
class TunerOutcome:
    """Result of the Tuner.

    source: `model`, `fallback` for the built-in choice, or `cancelled`.  refused: sentences on what it last
    asked for and did not get.  sentence: why the model's trials were not used.
    """

    source: Literal["model", "fallback", "cancelled"]
    granted: tuple[Granted, ...] = ()
    refused: tuple[str, ...] = ()
    sentence: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None


def bounds(usual: Limits, tokens: int) -> Limits:
    """Of one planning step.  tokens: that the campaign may still spend."""
    return Limits(
        turns=min(usual.turns, MOST_TURNS),
        tool_calls=min(usual.tool_calls, MOST_CALLS),
        calls_per_turn=min(usual.calls_per_turn, MOST_WISHES),
        tokens=min(usual.tokens, tokens),
        time_s=min(usual.time_s, MOST_S),
        cost_usd=usual.cost_usd,
        repairs=usual.repairs,
        retries=min(usual.retries, 1),
        answer_tokens=usual.answer_tokens,
    )


def advise(
    question: Question, provider: Provider, limits: Limits, cancel: Cancel | None = None
) -> Generator[RunEvent, None, TunerOutcome]:
    """Trials that a model asks for, with all that happens on the way; ends with one Final unless it was cancelled."""
    view = Tools(question)
    tools = (
        Tool("campaign", getdoc(view.campaign) or "", NoArguments, lambda _: view.campaign(), 24_000),
        Tool("predict", getdoc(view.predict) or "", Configuration, view.predict),
    )
    shown, seen = yield from look(tools, "campaign", "{}")
    messages: list[Message] = [
        SystemMessage(prompt(AGENT, __package__)),
        UserMessage("Ask for the next trials."),
        *shown,
    ]
    judge = _Judge(question)

    def check(answer: TrialRequests, results: tuple[ToolReturned, ...]) -> list[str]:
        return [text for each in judge.judged(answer, (*seen, *results)) for text in each.complaints]

    outcome: Outcome[TrialRequests] = yield from run(
        provider, messages, tools=tools, answer=TrialRequests, check=check, limits=limits, cancel=cancel
    )
    answer, stopped = outcome.answer, outcome.stopped
    spent = (outcome.usage, outcome.cost_usd)
    if stopped is not None and stopped.reason == "cancelled":
        return TunerOutcome("cancelled", (), (), stopped.sentence, *spent)
    if answer is None and stopped is not None and stopped.reason == "rejected":
        answer = _parsed_answer(stopped.last_answer)
    judged = judge.judged(answer, (*seen, *outcome.results)) if answer else ()
    granted = tuple(each.granted for each in judged if each.granted is not None)
    refused = tuple(each.refused[:MOST_SAID] for each in judged if each.refused)
    sentence = ""
    if not granted:
        sentence = _why_none(stopped.sentence if stopped else "", refused)
    if stopped is not None:
        said = answer.model_dump(mode="json") if answer and granted else "The built-in acquisition chooses."
        yield outcome.final(said, "model" if granted else "fallback")
    return TunerOutcome("model" if granted else "fallback", granted, refused, sentence, *spent)


def requested(choice: ScoredCandidate, model: str, reason: str) -> Sentence:
    """Why a trial that a model asked for is run, beside what the built-in acquisition predicts of it."""
    if reason:
        asked = say("Requested by {}: “{}”", model, reason)
    else:
        asked = say("Requested by {}; its reason refers to something that no result has and is omitted.", model)
    return join(" ", [asked, "By the built-in acquisition:", choice.why])


def instead(choice: ScoredCandidate, because: str) -> Sentence:
    """Why the built-in acquisition chose a trial although a model was to be asked."""
    return join(" ", [choice.why, "Chosen by the built-in acquisition.", because or NO_MORE])


def _why_none(stopped: str, refused: Sequence[str]) -> str:
    if refused:
        return f"The language model's request was refused: {refused[0]}"
    return stopped or "The language model left the choice to it."


def _parsed_answer(text: str | None) -> TrialRequests | None:
    try:
        return parse(text or "", TrialRequests)
    except AnswerError:
        return None


@dataclass(frozen=True)
class _Judged:
    """One requested trial.  refused: why it is not run; wrong: what its sentence refers to wrongly."""

    place: int
    what: str
    granted: Granted | None = None
    refused: str = ""
    wrong: tuple[str, ...] = ()

    @property
    def complaints(self) -> Iterator[str]:
        if self.refused:
            yield f"Trial {self.place} of your answer ({self.what}) is refused. {self.refused} Ask for another."
        for text in self.wrong:
            yield f"Trial {self.place} of your answer: {text}"


class _Judge:
    """Checks requested trials against the rules of the campaign, and the references of their sentences."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def judged(self, answer: TrialRequests, results: tuple[ToolReturned, ...]) -> tuple[_Judged, ...]:
        """The first requested trials, up to the limit."""
        seen: set[int] = set()
        judged = []
        sources = Sources.of(results)
        for place, item in enumerate(answer.trials[: self.question.most], start=1):
            what = mesh_text({"ici": item.mesh or dict(self.question.register.config.mesh.ici)})[:120]
            try:
                row = self._row(item, seen)
            except Refused as refused:
                judged.append(_Judged(place, what, refused=str(refused)))
                continue
            seen.add(row)
            wrong = tuple(sources.complaints(item.reason))
            reason = "" if wrong else sources.line(item.reason).text
            judged.append(_Judged(place, what, Granted(row, reason), wrong=wrong))
        return tuple(judged)

    def _row(self, item: TrialRequest, seen: set[int]) -> int:
        try:
            row = self.question.register.find(item.candidate(self.question.register.config))
        except ConfigError as error:
            raise Refused(f"It is not a valid configuration: {error}") from None
        if row in seen:
            raise Refused("It is requested twice.")
        if why := self.question.acquisition.refused(row):
            raise Refused(why)
        return row
