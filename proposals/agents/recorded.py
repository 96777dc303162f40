"""What agents did as the data of an Event, and back, so that what is on record can be read and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.events import Final, ModelRequest, RunEvent, Stopped, TextDelta, ToolCalled, event_from_json, event_to_json
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


def last_attempt(events: Iterable[RunEvent]) -> list[RunEvent]:
    """The newest attempt: a worker that took over from a dead one began anew.  Without pieces of text."""
    attempt: list[RunEvent] = []
    marks: set[tuple[str, Any]] = set()
    for event in events:
        mark = _beginning(event)
        if mark is not None and mark in marks and _may_begin_anew(attempt):
            attempt, marks = [], set()
        if mark is not None:
            marks.add(mark)
        if not isinstance(event, TextDelta):
            attempt.append(event)
    return attempt


def _may_begin_anew(attempt: list[RunEvent]) -> bool:
    """Whether the same mark again is another attempt, and not the built-in reasoner after a model that stopped."""
    return isinstance(attempt[-1], Final) or not any(isinstance(one, Stopped) for one in attempt)


def _beginning(event: RunEvent) -> tuple[str, Any] | None:
    """What happens once in an attempt: its first result, its first request."""
    if isinstance(event, ToolCalled) and event.result_id == _FIRST_RESULT:
        return (event.kind, event.result_id)
    if isinstance(event, ModelRequest) and (event.turn, event.attempt, event.since) == (1, 1, 0):
        return (event.kind, event.turn)
    return None
