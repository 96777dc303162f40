"""Convert the events of an agent's run to the data of Events, and back.

`event_data` and `run_event` are inverses; `steps` prepares them for a reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.events import (
    ModelRequest,
    RunEvent,
    TextDelta,
    ToolCalled,
    ToolReturned,
    event_from_json,
    event_to_json,
    requested,
)
from agent.messages import Message
from experiments.services.text import clean_json

#: Kinds of Events that are steps of an agent.
STEP_KINDS = (
    "model_request", "model_response", "tool_call", "tool_result", "complaint", "retry", "stopped", "final",
)  # fmt: skip
#: Under which name an event's own message stands, as `message` is the answer that it belongs to.
_SAID = "said"
_FIRST_RESULT = "r1"
#: Keys that say where a step belongs.
_PLACES = ("thread", "message", "campaign")


def event_data(
    event: RunEvent, thread: int | None = None, message: int | None = None, campaign: int | None = None
) -> dict[str, Any]:
    """The data of the Event of this kind; of an answer, with its thread and its message."""
    data = event_to_json(event)
    data.pop("kind")
    if "message" in data:
        data[_SAID] = data.pop("message")
    given = zip(_PLACES, (thread, message, campaign), strict=True)
    places = {name: value for name, value in given if value is not None}
    data_kept: dict[str, Any] = clean_json({**places, **data})
    return data_kept


def run_event(kind: str, data: Mapping[str, Any]) -> RunEvent:
    """The event of an Event's kind and data.  ValueError where it is none, or its payload was removed."""
    own = {key: value for key, value in data.items() if key not in (*_PLACES, _SAID)}
    if _SAID in data:
        own["message"] = data[_SAID]
    return event_from_json({**own, "kind": kind})


def last_attempt(events: Iterable[RunEvent]) -> tuple[RunEvent, ...]:
    """The newest attempt: a worker that took over from a dead one began anew.  Without pieces of text."""
    attempt: list[RunEvent] = []
    marks: set[str] = set()
    for event in events:
        begins = (isinstance(event, ToolCalled) and event.result_id == _FIRST_RESULT) or (
            isinstance(event, ModelRequest) and (event.turn, event.attempt, event.since) == (1, 1, 0)
        )
        if begins and event.kind in marks:
            attempt, marks = [], set()
        if begins:
            marks.add(event.kind)
        if not isinstance(event, TextDelta):
            attempt.append(event)
    return tuple(attempt)


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


def steps(events: Iterable[RunEvent]) -> list[Step]:
    """The steps in order."""
    events = tuple(events)
    sent = iter(requested(events))
    return [
        Step(number, event, next(sent)[1] if isinstance(event, ModelRequest) else ())
        for number, event in enumerate(events, 1)
    ]
