"""Every step of an agent becomes an Event."""

from __future__ import annotations

from agent.events import ModelResponse, RunEvent, event_to_json
from experiments.models import Event, Experiment, Run
from experiments.services import events
from formatting.text import clean_json


def store(
    experiment: Experiment | int,
    event: RunEvent,
    actor: str,
    *,
    run: Run | None = None,
    thread: int | None = None,
    message: int | None = None,
    campaign: int | None = None,
) -> Event:
    """Append the step to the Sharding Memory.  actor: `coordinator`, `analyzer`, `proposer` or `tuner`; run: whose work
    it is; thread, message: of the answer it belongs to; campaign: whose trials are chosen."""
    response = event if isinstance(event, ModelResponse) else None
    places = {"thread": thread, "message": message, "campaign": campaign}
    own = event_to_json(event)
    own.pop("kind")
    if "message" in own:  # of the Event that is the answer
        own["said"] = own.pop("message")
    return events.append(
        experiment,
        event.kind,
        actor,
        run=run,
        data=clean_json({key: each for key, each in places.items() if each is not None} | own),
        duration_s=getattr(event, "duration_s", None),
        tokens=response.usage.tokens if response else None,
        cost_usd=response.cost_usd if response else None,
    )
