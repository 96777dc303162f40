"""What agents did, as the data of an Event, and back: so that what is on record can be read and replayed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent.events import ModelRequest, RunEvent, Stopped, TextDelta, ToolCalled, event_from_json, event_to_json
from experiments.services.text import clean_json

#: Under which name an event's own message stands, as `message` is the answer that it belongs to.
SAID = "said"
#: How a conversation with a run begins: its first result, its first request.
_FIRST_RESULT = "r1"


def event_data(event: RunEvent, thread: int, message: int) -> dict[str, Any]:
    """The data of the Event of this kind, in the thread and of the answer `message`."""
    data = event_to_json(event)
    data.pop("kind")
    if "message" in data:
        data[SAID] = data.pop("message")
    found: dict[str, Any] = clean_json({"thread": thread, "message": message, **data})
    return found


def run_event(kind: str, data: dict[str, Any]) -> RunEvent:
    """The event of an Event's kind and data.  ValueError where it is none, or its payload was removed."""
    own = {key: value for key, value in data.items() if key not in ("thread", "message", SAID)}
    if SAID in data:
        own["message"] = data[SAID]
    return event_from_json({**own, "kind": kind})


def last_attempt(events: Iterable[RunEvent]) -> list[RunEvent]:
    """The events of the newest attempt at an answer: a worker that took over from a dead one began anew."""
    found: list[RunEvent] = []
    for event in events:
        if found and _begins(event) and not any(isinstance(one, Stopped) for one in found):
            seen = {_mark(one) for one in found}
            if _mark(event) in seen:
                found = []
        if not isinstance(event, TextDelta):
            found.append(event)
    return found


def _begins(event: RunEvent) -> bool:
    if isinstance(event, ToolCalled):
        return event.result_id == _FIRST_RESULT
    return isinstance(event, ModelRequest) and (event.turn, event.attempt, event.since) == (1, 1, 0)


def _mark(event: RunEvent) -> tuple[Any, ...]:
    if isinstance(event, ToolCalled):
        return (event.kind, event.result_id)
    return (event.kind, getattr(event, "turn", None), getattr(event, "attempt", None))
