"""Chat completions in the API's format: messages, and responses put together from their deltas."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.limits import CHARS_PER_TOKEN
from agent.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage
from agent.provider.base import Completion
from agent.strict_json import loads
from agent.tools import Tool
from formatting.text import clean

#: More tokens in one request than any model reads or writes: the server miscounts, and nothing of ours holds the sum.
_MOST_TOKENS = 10_000_000

#: Characters of a model's name, of a tool's and of a call's id: servers' own are shorter, and events hold each.
_LONGEST_NAME = 200

_OPEN, _CLOSE = "<think>", "</think>"


def wire_message(message: Message) -> dict[str, Any]:
    if isinstance(message, SystemMessage | UserMessage):
        return {"role": message.role, "content": message.text}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    wire: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _object(call.arguments)}}
            for call in message.tool_calls
        ]
    elif not message.text:
        wire["content"] = ""
    return wire


def _object(arguments: str) -> str:
    """The arguments if they are a JSON object: servers whose chat template parses them fail on anything else."""
    try:
        return arguments if isinstance(loads(arguments), dict) else "{}"
    except ValueError:
        return "{}"


def wire_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters()}
    return {"type": "function", "function": function}


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Assembly:
    """A response as its chunks arrive."""

    prompt_chars: int
    prompt_messages: int
    finish: str | None = None
    refusal: str = ""
    model: str = ""
    _text: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _by_index: dict[int, _Call] = field(default_factory=dict)
    _usage: Usage | None = None
    _calls_chars: int = 0
    _text_chars: int = 0
    _choice: object = None  # index of the one that is read, where a server writes several
    _held: str | None = ""  # start of a text that may be a <think> block; None once that is decided

    def feed(self, chunk: dict[str, Any]) -> str:
        """Takes a chunk; returns the text that it adds."""
        self.model = str(chunk.get("model") or self.model)[:_LONGEST_NAME]
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = _usage(usage) or self._usage
        choices = chunk.get("choices")
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return ""
        choice = choices[0]
        if self._choice is None:
            self._choice = choice.get("index")
        elif choice.get("index", self._choice) != self._choice:
            return ""
        delta = choice.get("delta") or choice.get("message") or {}
        self.finish = choice.get("finish_reason") or self.finish
        self.refusal += str(delta.get("refusal") or "")
        for position, call in enumerate(delta.get("tool_calls") or ()):
            if isinstance(call, dict):
                self._call(call, position)
        content = delta.get("content")
        return self._visible(content) if isinstance(content, str) else ""

    def _call(self, delta: dict[str, Any], position: int) -> None:
        index = delta.get("index")
        index = index if isinstance(index, int) else position
        given = str(delta.get("id") or "")
        given = given if len(given) <= _LONGEST_NAME else ""
        call = self._by_index.get(index)
        if call is None or (given and call.id and given != call.id):  # some servers number every call 0
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.id = call.id or given
        function = delta.get("function") or {}
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        if name and name != call.name and not call.arguments:  # some servers repeat the name in every piece
            call.name = (call.name + name)[:_LONGEST_NAME]
            self._calls_chars += len(name)
        if arguments:
            written = arguments if isinstance(arguments, str) else json.dumps(arguments)
            call.arguments += written
            self._calls_chars += len(written)

    def _visible(self, text: str) -> str:
        """The text without a `<think>` block in front of it."""
        if self._held is not None:
            self._held += text
            start = self._held.lstrip()
            if _OPEN.startswith(start[: len(_OPEN)]) and len(start) < len(_OPEN):
                return ""
            if start.startswith(_OPEN):
                if _CLOSE not in start:
                    return ""
                text = start.partition(_CLOSE)[2].lstrip()
                if not text:
                    return ""
            else:
                text = self._held
            self._held = None
        if text:
            self._text.append(text)
            self._text_chars += len(text)
        return clean(text)

    @property
    def chars(self) -> int:
        return self._text_chars + len(self._held or "") + self._calls_chars

    def usage(self) -> Usage:
        """As counted by the server, else estimated from the characters."""
        if self._usage is not None:
            return self._usage
        return Usage(self.prompt_chars // CHARS_PER_TOKEN, -(-self.chars // CHARS_PER_TOKEN), estimated=True)

    def completion(self) -> Completion:
        """The whole response, once `finish` is known.  A call without an id gets one."""
        before = self.prompt_messages  # so that ids of two turns differ
        calls = tuple(
            ToolCall(clean(call.id) or f"call_{before}_{number}", clean(call.name), clean(call.arguments) or "{}")
            for number, call in enumerate(self._calls, 1)
        )
        held = self._held or ""  # "<th", and the text ended
        text = clean("".join(self._text) + ("" if held.lstrip().startswith(_OPEN) else held))
        finish: Literal["stop", "tool_calls", "length"] = "tool_calls" if calls else "stop"
        if self.finish == "length":
            finish = "length"
        return Completion(AssistantMessage(text, calls), finish, self.usage(), clean(self.model))


def _usage(usage: dict[str, Any]) -> Usage | None:
    """As the server counts; None where that is no count of tokens."""
    counted = Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
    return counted if counted.tokens <= _MOST_TOKENS else None


def _count(value: object) -> int:
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else _MOST_TOKENS + 1
    return max(value, 0) if isinstance(value, int) else 0
