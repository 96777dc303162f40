"""What a model is shown before it is asked, so that it need not spend its first turn on finding out where it is."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from agent.events import RunEvent, ToolCalled, ToolReturned
from agent.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agent.tools import Tool, by_name, call_tool

Looks = Sequence[tuple[str, Mapping[str, Any]]]


def look(
    tools: Sequence[Tool], looks: Looks
) -> Generator[RunEvent, None, tuple[tuple[Message, ...], tuple[ToolReturned, ...]]]:
    """Calls each tool as a model would.  Returns (messages, results) for a conversation to begin with."""
    calls = tuple(
        ToolCall(f"look-{number}", name, json.dumps(dict(arguments)) if arguments else "{}")
        for number, (name, arguments) in enumerate(looks, start=1)
    )
    messages: list[Message] = [AssistantMessage("", calls)]
    results: list[ToolReturned] = []
    known = by_name(tools)
    for number, call in enumerate(calls, start=1):
        yield ToolCalled(0, call, f"r{number}")
        returned = call_tool(known, call, f"r{number}")
        yield returned
        results.append(returned)
        messages.append(ToolMessage(call.id, call.name, returned.text, returned.result_id))
    return tuple(messages), tuple(results)
