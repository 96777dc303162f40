"""The words of a conversation with a language model, as frozen values.

A conversation is a tuple of messages: system, user, assistant (text and tool calls) and tool (the answer to one call).
Texts are clean: no lone surrogate and no NUL, so that PostgreSQL and JSON can hold them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

__all__ = ["JsonValue"]


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for.  arguments: the JSON text as the model wrote it, valid or not."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class SystemMessage:
    text: str
    role: Literal["system"] = "system"


@dataclass(frozen=True)
class UserMessage:
    text: str
    role: Literal["user"] = "user"


@dataclass(frozen=True)
class AssistantMessage:
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True)
class ToolMessage:
    """What a call returned, as the model reads it.  result_id: the id (`r7`) by which sentences may cite it."""

    call_id: str
    name: str
    text: str
    result_id: str = ""
    role: Literal["tool"] = "tool"


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more model requests.

    tokens_in: prompt.  tokens_out: generated, reasoning included.  estimated: some of it is not the server's count but
    a quarter of the characters.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        tokens_in, tokens_out = self.tokens_in + other.tokens_in, self.tokens_out + other.tokens_out
        return Usage(tokens_in, tokens_out, self.estimated or other.estimated)

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def size_chars(messages: Iterable[Message]) -> int:
    """Characters of texts, tool names and arguments: the basis of token estimates."""
    total = 0
    for message in messages:
        total += len(message.text)
        if isinstance(message, AssistantMessage):
            total += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return total
