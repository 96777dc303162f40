"""The capabilities as tools of a language model: the same functions, whose result is the text with all that it was
computed from."""

from __future__ import annotations

from typing import Any

from agent.events import ToolReturned
from agent.tools import Tool
from proposals.agents.capabilities.capability import Capability, answer, registry
from proposals.agents.capabilities.desk import Desk
from proposals.agents.conversation import ConstraintTold, FactTold, Question
from proposals.agents.workbench import Workbench

#: Areas that models have tools of their own for, or that are the user's alone.
LEFT_OUT = frozenset(("held",))
#: Of one result, as a model reads it.
MOST_CHARACTERS = 16_000


def called(bench: Workbench, of: Capability, values: Any) -> dict[str, Any]:
    """What a capability computes, outside a conversation: title, text, results of its tools, questions back."""
    desk = Desk(bench)
    said = list(answer(desk, of, values))
    found: dict[str, Any] = {
        "answers": of.title,
        "text": desk.text,
        "results": [
            {"tool": item.name, "arguments": item.arguments, "result": item.result}
            for item in said
            if isinstance(item, ToolReturned) and item.ok
        ],
    }
    asked = [item for item in said if isinstance(item, Question)]
    if asked:
        found["asks_back"] = [{"text": item.text, "choices": list(item.options)} for item in asked]
    held = [item for item in said if isinstance(item, ConstraintTold | FactTold)]
    if held:
        found["would_hold"] = [item.sentence for item in held]
    return found


def capability_tools(bench: Workbench) -> tuple[Tool, ...]:
    """Every capability but those of the conversation itself, under the name `ask_<key>`."""
    return tuple(_tool(bench, item) for item in registry().values() if item.area not in LEFT_OUT)


def _tool(bench: Workbench, of: Capability) -> Tool:
    return Tool(
        f"ask_{of.key}", of.description, of.arguments, lambda values: called(bench, of, values), MOST_CHARACTERS
    )
