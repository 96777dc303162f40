"""The Tuner: a language model that asks for the next trials of a campaign, each with a sentence.

What it asks for is tried only where the rules let it be tried, and its numbers are the built-in acquisition's; its
sentence is shown only where its references lead to results.  Otherwise the built-in choice is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent.control import Cancel
from agent.events import RunEvent, ToolReturned
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, UserMessage
from agent.provider.base import Provider
from agent.tools import AnswerError, NoArguments, Tool, parse
from campaigns.agents.view import Question, Tools
from campaigns.engine.acquisition import ScoredCandidate
from campaigns.engine.space import NoCandidateError, key_of
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
class Wish:
    """A trial that the model asks for and that is allowed, by the key of its configuration.  reason: empty if
    unsupported."""

    key: str
    reason: str


@dataclass(frozen=True)
class Advised:
    """The answer of the language model, kept by the campaign until it is planned.

    model: who was asked.  refused: sentences on what it last asked for and did not get.  sentence: why the built-in
    choice is used.
    """

    model: str = ""
    wishes: tuple[Wish, ...] = ()
    refused: tuple[str, ...] = ()
    sentence: str = ""


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
) -> Generator[RunEvent, None, Advised | None]:
    """Return the trials that a model asks for, with all that happens on the way; ends with one Final, or with None
    where it was cancelled."""
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

    def check(answer: TrialRequests, results: tuple[ToolReturned, ...]) -> list[str]:
        return [text for each in _judged(question, answer, (*seen, *results)) for text in each.complaints]

    outcome: Outcome[TrialRequests] = yield from run(
        provider, messages, tools=tools, answer=TrialRequests, check=check, limits=limits, cancel=cancel
    )
    answer, stopped = outcome.answer, outcome.stopped
    if stopped is not None and stopped.reason == "cancelled":
        return None
    if answer is None and stopped is not None and stopped.reason == "rejected":
        with suppress(AnswerError):
            answer = parse(stopped.last_answer or "", TrialRequests)
    judged = _judged(question, answer, (*seen, *outcome.results)) if answer else []
    wishes = tuple(each.wish for each in judged if each.wish is not None)
    refused = tuple(each.refused[:MOST_SAID] for each in judged if each.refused)
    sentence = ""
    if not wishes:
        sentence = f"The language model's request was refused: {refused[0]}" if refused else ""
        sentence = sentence or (stopped.sentence if stopped else "") or "The language model left the choice to it."
    if stopped is not None:
        said = answer.model_dump(mode="json") if answer and wishes else "The built-in acquisition chooses."
        yield outcome.final(said, "model" if wishes else "fallback")
    return Advised(provider.model, wishes, refused, sentence)


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


@dataclass(frozen=True)
class _Judged:
    """One requested trial.  refused: why it is not run; wrong: what its sentence refers to wrongly."""

    place: int
    what: str
    wish: Wish | None = None
    refused: str = ""
    wrong: tuple[str, ...] = ()

    @property
    def complaints(self) -> Iterator[str]:
        if self.refused:
            yield f"Trial {self.place} of your answer ({self.what}) is refused. {self.refused} Ask for another."
        for text in self.wrong:
            yield f"Trial {self.place} of your answer: {text}"


def _judged(question: Question, answer: TrialRequests, results: tuple[ToolReturned, ...]) -> list[_Judged]:
    """Return the first requested trials, up to the limit, held against the rules of the campaign, and their sentences
    against the results that they refer to."""
    space, judged, sources = question.space, [], Sources.of(results)
    seen: set[int] = set()
    for place, item in enumerate(answer.trials[: question.most], start=1):
        what = mesh_text({"ici": item.mesh or dict(space.config.mesh.ici)})[:120]
        try:
            row = space.find(item.candidate(space.config))
            why = "It is requested twice." if row in seen else question.acquisition.refused(row)
        except ConfigError as error:
            why = f"It is not a valid configuration: {error}"
        except NoCandidateError as refused:
            why = str(refused)
        if why:
            judged.append(_Judged(place, what, refused=why))
            continue
        seen.add(row)
        wrong = tuple(sources.complaints(item.reason))
        reason = "" if wrong else sources.line(item.reason).text
        key = key_of(question.acquisition.candidates.configs[row])
        judged.append(_Judged(place, what, Wish(key, reason), wrong=wrong))
    return judged
