"""What the loop asks of a provider: one request, its text as it comes, then the whole response or a fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from agent.control import Cancel
from agent.events import Fault
from agent.limits import Price
from agent.messages import AssistantMessage, Message, Usage
from agent.tools import Tool


@dataclass(frozen=True)
class Request:
    """One request to a model.

    tool_choice `none`: the model must answer in words now.  max_tokens: of the response.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    max_tokens: int = 16_000


@dataclass(frozen=True)
class Completion:
    """A whole response.  model: as the server names it."""

    message: AssistantMessage
    finish: Literal["stop", "tool_calls", "length"]
    usage: Usage
    model: str


class ProviderError(Exception):
    """A request that failed; `fault` says why, for program and user."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.sentence)


class Provider(Protocol):
    """A model behind an endpoint.  price: None where it is not known."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def price(self) -> Price | None: ...

    def complete(self, request: Request, *, timeout_s: float, cancel: Cancel) -> Iterator[str | Completion]:
        """Yields text as it comes, last the whole response.  Raises ProviderError; closing it ends the request."""
        ...
