"""A recorded run is repeated step by step without the endpoint, and any change shows where it begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from agent.events import RunEvent, event_from_json, event_to_json
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, UserMessage
from agent.provider.base import Provider
from agent.provider.openai import OpenAIProvider
from agent.provider.replay import (
    Exchange,
    Recorder,
    ReplayMismatch,
    ReplayProvider,
    exchange_to_line,
    exchanges_from_events,
    exchanges_from_lines,
)
from agent.tools import Arguments, Tool, tool
from tests.agent.conftest import NoWaiting, drive, settings_for
from tests.agent.server import ScriptedServer, answer, calls, error, overflow, text

Serve = Callable[..., ScriptedServer]
SAID: Sequence[Message] = [SystemMessage("You analyse profiles."), UserMessage("Why is the step slow?")]


class Verdict(BaseModel):
    size: int


class Axis(Arguments):
    name: str


def tools(size: int = 4) -> list[Tool]:
    def axis_size(axis: Axis) -> dict[str, Any]:
        """Size of a mesh axis."""
        return {"axis": axis.name, "size": size, "notes": "x" * 3000}

    return [tool(axis_size)]


def go(provider: Provider, said: Sequence[Message] = SAID, **more: Any) -> tuple[list[RunEvent], Outcome[Any]]:
    more.setdefault("tools", tools())
    clock = NoWaiting().clock()
    return drive(run(provider, said, answer=Verdict, check=right, limits=Limits(time_s=60), clock=clock, **more))


def right(verdict: Verdict, results: object) -> list[str]:
    return [] if verdict.size == 4 else [f"{verdict.size} is wrong."]


@pytest.fixture
def recorded(serve: Serve) -> tuple[list[Exchange], list[RunEvent], Outcome[Any]]:
    """A run with everything in it: a failure, tools, an overflow, a rejected answer."""
    server = serve(
        [
            error(500, "Hiccup"),
            calls(("axis_size", {"name": "data"}), said="Let me see."),
            overflow(),
            answer({"size": 5}),
            answer({"size": 4}),
        ]
    )
    exchanges: list[Exchange] = []
    events, outcome = go(Recorder(OpenAIProvider(settings_for(server)), exchanges.append))
    assert outcome.answer == Verdict(size=4) and server.left == 0
    return exchanges, events, outcome


def told(events: Sequence[RunEvent]) -> list[dict[str, Any]]:
    """Events without what depends on the machine: the provider's name, durations, pieces of text."""
    kept = []
    for event in events:
        data: dict[str, Any] = event_to_json(event)
        for key in ("provider", "duration_s", "first_token_s"):
            data.pop(key, None)
        if data["kind"] != "text_delta":
            kept.append(data)
    return kept


def test_a_recording_repeats_the_run(recorded: Any) -> None:
    exchanges, events, outcome = recorded
    lines = "\n".join(exchange_to_line(each) for each in exchanges)
    again = ReplayProvider(exchanges_from_lines(lines.splitlines()))
    replayed, same = go(again)
    assert told(replayed) == told(events)
    assert same.answer == outcome.answer and same.messages == outcome.messages
    assert again.remaining == 0


def test_a_run_is_repeated_from_its_stored_events(recorded: Any) -> None:
    _, events, outcome = recorded
    stored = [json.loads(json.dumps(event_to_json(event))) for event in events if event.kind != "text_delta"]
    replay = ReplayProvider(exchanges_from_events(event_from_json(data) for data in stored))
    replayed, same = go(replay)
    assert told(replayed) == told(events) and same.usage == outcome.usage
    assert replay.remaining == 0


def test_a_run_that_was_stopped_is_repeated_to_its_stop(serve: Serve) -> None:
    events, outcome = go(OpenAIProvider(settings_for(serve([error(401, "No")]))))
    replayed, same = go(ReplayProvider(exchanges_from_events(events)))
    assert same.stopped == outcome.stopped and told(replayed) == told(events)


def test_another_tool_result_is_noticed_where_it_shows(recorded: Any) -> None:
    with pytest.raises(ReplayMismatch) as caught:
        go(ReplayProvider(recorded[0]), tools=tools(size=8))
    said = str(caught.value)
    assert said.startswith("Request 3 differs from the recorded one: message 4 (tool result r1)")
    assert '"size": 4' in said and '"size": 8' in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"said": [SystemMessage("You analyse traces."), *SAID[1:]]},
            "message 1 (system message) was 'You analyse profiles.'",
        ),
        ({"said": [*SAID, UserMessage("Quick!")]}, "it has 3 messages, the recorded one 2."),
        ({"tools": []}, "it offers the tools none, the recorded one axis_size."),
    ],
)
def test_another_request_is_explained(recorded: Any, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ReplayMismatch) as caught:
        go(ReplayProvider(recorded[0]), **more)
    assert str(caught.value).startswith("Request 1 differs") and says in str(caught.value)


def test_another_description_of_a_tool_is_another_request(recorded: Any) -> None:
    def axis_size(axis: Axis) -> int:
        """Number of chips along a mesh axis."""
        return 4

    with pytest.raises(ReplayMismatch, match="description or arguments, the tool choice or the answer's schema"):
        go(ReplayProvider(recorded[0]), tools=[tool(axis_size)])


def test_a_request_past_the_recording_is_named(recorded: Any) -> None:
    with pytest.raises(ReplayMismatch, match="Request 2 was never recorded: the recording has 1"):
        go(ReplayProvider(recorded[0][:1]))


def test_a_broken_recording_names_its_line(recorded: Any) -> None:
    line = exchange_to_line(recorded[0][0])
    with pytest.raises(ValueError, match="Line 3 is no recorded exchange"):
        exchanges_from_lines([line, "", line[:50]])


def test_a_recorder_changes_nothing(serve: Serve) -> None:
    server = serve([text('{"size": 4}')])
    provider = OpenAIProvider(settings_for(server))
    recorder = Recorder(provider, lambda exchange: None)
    assert (recorder.name, recorder.model, recorder.price) == (provider.name, provider.model, None)
    events, _ = go(recorder)
    assert len([event for event in events if event.kind == "text_delta"]) == 2
