"""Recorded model responses: a provider that answers from them, and one that writes them down.

A replay is strict: the n-th request must be the n-th recorded one, told by the hash of messages, tools and schema.  So
a run is repeated step by step, and a change in a prompt, a tool or a tool's result is noticed where it first shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from agent.control import Cancel
from agent.events import Fault, ModelRequest, ModelResponse, Retry, RunEvent, Stopped
from agent.limits import Price
from agent.messages import Message, ToolMessage
from agent.provider.base import Completion, Provider, ProviderError, Request


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


_EXCHANGE: TypeAdapter[Exchange] = TypeAdapter(Exchange)


def exchange_to_line(exchange: Exchange) -> str:
    """One line of JSON Lines, without its newline."""
    return json.dumps(_EXCHANGE.dump_python(exchange, mode="json"), ensure_ascii=False)


def exchanges_from_lines(lines: Iterable[str]) -> tuple[Exchange, ...]:
    """The exchanges of a JSON Lines text.  ValueError names the first line that is none."""
    exchanges = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                exchanges.append(_EXCHANGE.validate_python(json.loads(line)))
            except ValueError as error:
                raise ValueError(f"Line {number} is no recorded exchange: {str(error).splitlines()[0]}") from None
    return tuple(exchanges)


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


class ReplayProvider:
    """Answers the n-th request with the n-th exchange.  price: as at the recording, if costs are to be repeated."""

    name = "replay"

    def __init__(self, exchanges: Iterable[Exchange], price: Price | None = None) -> None:
        self._exchanges = tuple(exchanges)
        self._next = 0
        self.price = price
        self.model = self._exchanges[0].model if self._exchanges else "nothing recorded"

    @property
    def remaining(self) -> int:
        """Recorded exchanges that have not been asked for."""
        return len(self._exchanges) - self._next

    def complete(self, request: Request, *, timeout_s: float, cancel: Cancel) -> Iterator[str | Completion]:
        """The recorded answer, its text in one piece.  Raises ReplayMismatch where another request was recorded."""
        number = self._next + 1
        if not self.remaining:
            raise ReplayMismatch(f"Request {number} was never recorded: the recording has {len(self._exchanges)}.")
        exchange = self._exchanges[self._next]
        if exchange.key != request.key():
            raise ReplayMismatch(f"Request {number} differs from the recorded one: {_difference(exchange, request)}")
        self._next += 1
        self.model = exchange.model
        if exchange.fault is not None:
            raise ProviderError(exchange.fault)
        assert exchange.completion is not None
        if exchange.completion.message.text:
            yield exchange.completion.message.text
        yield exchange.completion


class Recorder:
    """A provider that hands each exchange of another provider to `write`, then passes it on."""

    def __init__(self, provider: Provider, write: Callable[[Exchange], Any]) -> None:
        self._provider = provider
        self._write = write

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def price(self) -> Price | None:
        return self._provider.price

    def complete(self, request: Request, *, timeout_s: float, cancel: Cancel) -> Iterator[str | Completion]:
        tools = tuple(spec.name for spec in request.tools)
        recorded = Exchange(request.key(), self.model, request.messages, tools)
        try:
            for part in self._provider.complete(request, timeout_s=timeout_s, cancel=cancel):
                if isinstance(part, Completion):
                    self._write(replace(recorded, completion=part))
                yield part
        except ProviderError as error:
            self._write(replace(recorded, fault=error.fault))
            raise


def _difference(exchange: Exchange, request: Request) -> str:
    for number, (then, now) in enumerate(zip(exchange.messages, request.messages, strict=False), 1):
        if then != now:
            what = f"tool result {now.result_id}" if isinstance(now, ToolMessage) else f"{now.role} message"
            return f"message {number} ({what}) was {_excerpt(then, now)} and is {_excerpt(now, then)}."
    if len(exchange.messages) != len(request.messages):
        return f"it has {len(request.messages)} messages, the recorded one {len(exchange.messages)}."
    tools = tuple(spec.name for spec in request.tools)
    if tools != exchange.tools:
        offered, recorded = ", ".join(tools) or "none", ", ".join(exchange.tools) or "none"
        return f"it offers the tools {offered}, the recorded one {recorded}."
    return "a tool's description or arguments, the tool choice or the answer's schema has changed."


def _excerpt(message: Message, other: Message) -> str:
    """The text of a message around the first character that differs from the other's."""
    if message.role != other.role or message.text == other.text:
        return repr(message)[:160]
    characters = zip(message.text, other.text, strict=False)
    at = next((i for i, (a, b) in enumerate(characters) if a != b), min(len(message.text), len(other.text)))
    start = max(at - 30, 0)
    return repr(("…" if start else "") + message.text[start : at + 50])
