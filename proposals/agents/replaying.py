"""Recorded answers: read step by step, and given again by today's code against the recorded responses of the model.

A second answer takes the n-th recorded response for its n-th request, and runs the tools again.  Where a request, a
tool's result or anything else differs from the record it stops: there code or data has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.control import Cancel
from agent.events import Final, ModelRequest, RunEvent, Stopped, ToolReturned, event_to_json, requested
from agent.limits import Price
from agent.messages import Message
from agent.provider.base import Completion, Provider, ProviderError, Request
from agent.provider.replay import Exchange, ReplayMismatch, exchanges_from_events
from proposals.agents import analyzer_agent, chat, proposal_agent, reasoner
from proposals.agents.conversation import Ask, Said, Turn
from proposals.agents.recorded import STEP_KINDS, last_attempt, run_event
from proposals.agents.replay_diff import Difference, compare, event_difference
from proposals.agents.workbench import Workbench


class NoRecording(ValueError):
    """What was given is no recording; the text is a sentence for the user."""


@dataclass(frozen=True)
class Recording:
    """The steps of one answer.  ask: what was asked, as far as it is known; message: the answer's number."""

    events: tuple[RunEvent, ...]
    ask: Ask | None = None
    message: int | None = None
    thread: int | None = None

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return exchanges_from_events(self.events)

    @property
    def ended(self) -> bool:
        """Whether the answer came to its end, and was not stopped or lost."""
        return any(isinstance(event, Final) for event in self.events)


@dataclass(frozen=True)
class Rerun:
    """What came of a second answer.  compared: steps that are the same."""

    compared: int
    steps: int
    difference: Difference | None = None

    @property
    def same(self) -> bool:
        return self.difference is None

    @property
    def sentence(self) -> str:
        if self.difference is not None:
            return self.difference.sentence
        return f"Same: the current code repeats all {self.steps} steps."


def rerun(bench: Workbench, ask: Ask, recording: Recording) -> Rerun:
    """Answer again, and compare step by step; the first difference ends it.  Raises NoRecording where nothing is."""
    asked_a_model = any(isinstance(event, ModelRequest) for event in recording.events)

    def again(provider: Provider) -> Iterator[Said]:
        return chat.answer(bench, ask, Cancel(), provider) if asked_a_model else reasoner.answer(bench, ask)

    return repeat(recording, again)


def rerun_agent(bench: Workbench, agent: str, recording: Recording) -> Rerun:
    """The same for the Analyzer's report, or for the Proposal agent's proposals."""
    if agent == analyzer_agent.AGENT:
        return repeat(recording, lambda provider: analyzer_agent.report(bench, provider))
    if agent == proposal_agent.AGENT:
        return repeat(recording, lambda provider: proposal_agent.propose(bench, provider))
    raise NoRecording(f"Steps of the {agent} cannot be rerun.")


def repeat(recording: Recording, again: Callable[[Provider], Iterator[Said]]) -> Rerun:
    """What is said again, with the recorded responses, beside what was said."""
    then = recording.events
    if not then:
        raise NoRecording("Nothing was recorded for this answer.")
    said = again(_Recorded(recording.exchanges))
    steps: Iterator[RunEvent] = (item for item in said if item.kind in STEP_KINDS)  # type: ignore[misc]
    compared, exact = 0, True
    try:
        for now in steps:
            if compared == len(then):
                break  # the record ends here: the answer was stopped, or its worker died
            difference = compare(then[compared], now, compared + 1)
            exact = exact and _sent(then[compared]) == _sent(now)
            if exact and difference is None:
                difference = event_difference(then[compared], now, compared + 1)
            if difference is not None:
                return Rerun(compared, len(then), difference)
            compared += 1
            if _was_cancelled(then[compared:]):
                break
    except ReplayMismatch as error:
        if compared < len(then):
            return Rerun(compared, len(then), Difference(compared + 1, "the request", "recorded", str(error)))
    if compared < len(then) and recording.ended and not _was_cancelled(then[compared:]):
        missing = then[compared].kind.replace("_", " ")
        return Rerun(compared, len(then), Difference(compared + 1, f"a {missing}", "there", "missing"))
    return Rerun(compared, len(then))


def _sent(event: RunEvent) -> tuple[Message, ...]:
    return event.messages if isinstance(event, ModelRequest) else ()


def _was_cancelled(left: Sequence[RunEvent]) -> bool:
    return bool(left) and isinstance(left[0], Stopped) and left[0].reason == "cancelled"


@dataclass
class _Recorded:
    """A provider that gives the n-th recorded response to the n-th request; the steps show any difference."""

    exchanges: tuple[Exchange, ...]
    next: int = 0
    name: str = "replay"
    price: Price | None = None

    @property
    def model(self) -> str:
        return self.exchanges[min(self.next, len(self.exchanges) - 1)].model if self.exchanges else ""

    def complete(self, request: Request, *, timeout_s: float, cancel: Cancel) -> Iterator[str | Completion]:
        if self.next >= len(self.exchanges):
            raise ReplayMismatch(f"request {self.next + 1} was never answered")
        exchange = self.exchanges[self.next]
        self.next += 1
        if exchange.fault is not None:
            raise ProviderError(replace(exchange.fault, wait_s=0.0))
        assert exchange.completion is not None
        if exchange.completion.message.text:
            yield exchange.completion.message.text
        yield exchange.completion


# Recordings in exported files, and their steps for a reader.


def recordings(lines: Iterable[str]) -> list[Recording]:
    """The answers in an exported JSON Lines text, oldest first.

    What was asked, and what was said before, is read from the same lines; the constraints and facts of a thread are not
    in them. Raises NoRecording for a line that is no event, or where there is no answer.
    """
    answers: dict[int, list[RunEvent]] = {}
    asks: dict[int, Ask] = {}
    said: dict[int, list[Turn]] = {}
    open_question: dict[int, str] = {}
    thread_of: dict[int, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        kind, data = _row(line, number)
        thread, message = data.get("thread"), data.get("message")
        if not isinstance(thread, int) or not isinstance(message, int):
            continue
        if kind == "message":
            if isinstance(data.get("text"), str):
                open_question[thread] = data["text"]
            continue
        if kind not in STEP_KINDS:
            continue
        try:
            event = run_event(kind, data)
        except ValueError:
            what = f"Line {number} is not a step of an agent"
            raise NoRecording(f"{what}, or its payload was removed by the team's retention.") from None
        answers.setdefault(message, []).append(event)
        thread_of[message] = thread
        turns = said.setdefault(thread, [])
        if thread in open_question and message not in asks:
            asks[message] = Ask(open_question[thread], tuple(turns))
        if isinstance(event, Final) and isinstance(event.answer, str) and message in asks:
            returned = tuple(item for item in last_attempt(answers[message]) if isinstance(item, ToolReturned))
            turns += [Turn("user", asks[message].text), Turn("assistant", event.answer, returned)]
    if not answers:
        raise NoRecording("There is no answer in this file: export the events of a conversation as JSON Lines.")
    return [
        Recording(tuple(last_attempt(events)), asks.get(message), message, thread_of[message])
        for message, events in answers.items()
    ]


def _row(line: str, number: int) -> tuple[str, dict[str, Any]]:
    try:
        row = json.loads(line)
        kind, data = row["kind"], row["data"]
    except (ValueError, KeyError, TypeError):
        raise NoRecording(f"Line {number} is not an event of an exported Sharding Memory.") from None
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise NoRecording(f"Line {number} is not an event of an exported Sharding Memory.")
    return kind, data


@dataclass(frozen=True)
class Step:
    """One step for a reader.  messages: all that a request sent, the new ones from `since` on."""

    number: int
    event: RunEvent
    messages: tuple[Message, ...] = ()

    @property
    def pretty(self) -> str:
        """Of a tool's result, the result; of any other step, the step."""
        shown = self.event.result if isinstance(self.event, ToolReturned) else event_to_json(self.event)
        return json.dumps(shown, indent=2, ensure_ascii=False)


def steps(recording: Recording) -> list[Step]:
    """The steps of a recording in order."""
    sent = iter(requested(recording.events))
    return [
        Step(number, event, next(sent)[1] if isinstance(event, ModelRequest) else ())
        for number, event in enumerate(recording.events, 1)
    ]
