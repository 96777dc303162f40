"""Recorded model responses: what was asked and answered, from the events of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.events import Fault, ModelRequest, ModelResponse, Retry, RunEvent, Stopped
from agent.messages import Message
from agent.provider.base import Completion


class ReplayMismatch(Exception):
    """A request that is not the recorded one; the text says where they part."""


@dataclass(frozen=True)
class Exchange:
    """One recorded request and what came of it: a completion, or a fault."""

    key: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    completion: Completion | None = None
    fault: Fault | None = None


def exchanges_from_events(events: Iterable[RunEvent]) -> tuple[Exchange, ...]:
    """The exchanges of a run from its events; a request that was never answered is left out."""
    exchanges: list[Exchange] = []
    messages: tuple[Message, ...] = ()
    request: ModelRequest | None = None
    for event in events:
        if isinstance(event, ModelRequest):
            messages, request = messages[: event.since] + event.messages, event
            continue
        if request is None:
            continue
        completion = fault = None
        if isinstance(event, ModelResponse):
            completion = Completion(event.message, event.finish, event.usage, event.model)
        elif isinstance(event, Retry | Stopped):
            fault = event.fault
        if completion or fault:
            exchanges.append(Exchange(request.key, request.model, messages, request.tools, completion, fault))
            request = None
    return tuple(exchanges)
