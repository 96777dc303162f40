"""The data of the Event that records a step of an agent."""

from __future__ import annotations

from typing import Any

from agent.events import RunEvent, event_to_json
from formatting.text import clean_json


def event_data(event: RunEvent, **places: int | None) -> dict[str, Any]:
    """Return the data of the Event of this kind.  places: `thread` and `message` of its answer, or its `campaign`.

    As `message` is the answer that a step belongs to, its own message is under `said`.
    """
    own = {"said" if name == "message" else name: each for name, each in event_to_json(event).items() if name != "kind"}
    data: dict[str, Any] = clean_json({name: each for name, each in places.items() if each is not None} | own)
    return data
