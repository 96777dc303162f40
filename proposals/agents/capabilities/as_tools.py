"""The capabilities as a tool of a language model, and for REST: the same functions, whose result is the text with all
that it was computed from."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent.events import ToolReturned
from agent.tools import Arguments, Tool, ToolError
from formatting import did_you_mean
from proposals.agents.capabilities.answer_context import AnswerContext
from proposals.agents.capabilities.capability import Capability, answer, arguments, registry
from proposals.agents.conversation import ConstraintStated, FactStated, Question
from proposals.agents.workbench import Workbench

#: Areas that models have tools of their own for, or that are the user's alone.
LEFT_OUT = frozenset(("held",))
#: Of one result, as a model reads it.
MOST_CHARACTERS = 16_000


def called(bench: Workbench, of: Capability, values: Any) -> dict[str, Any]:
    """What a capability computes, outside a conversation: title, text, results of its tools, questions back."""
    ctx = AnswerContext(bench)
    said = list(answer(ctx, of, values))
    answered: dict[str, Any] = {
        "answers": of.title,
        "text": ctx.text,
        "results": [
            {"tool": item.name, "arguments": item.arguments, "result": item.result}
            for item in said
            if isinstance(item, ToolReturned) and item.ok
        ],
    }
    asked = [item for item in said if isinstance(item, Question)]
    if asked:
        answered["asks_back"] = [{"text": item.text, "choices": list(item.options)} for item in asked]
    held = [item for item in said if isinstance(item, ConstraintStated | FactStated)]
    if held:
        answered["would_hold"] = [item.sentence for item in held]
    return answered


class Compute(Arguments):
    """One capability by its key, with the arguments of its form."""

    capability: str = Field(max_length=60, description="Its key, from the list above.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="By name, as listed; all may be left out.")


def compute_tool(bench: Workbench) -> Tool:
    """The capabilities as one tool, whose description lists them: seventy schemas would fill every request."""

    def compute(asked: Compute) -> dict[str, Any]:
        of = registry().get(asked.capability)
        if of is None or of.area in LEFT_OUT:
            raise ToolError(
                f"There is no capability {asked.capability[:60]!r}.{did_you_mean(asked.capability, _keys())}"
            )
        return called(bench, of, arguments(of, asked.arguments))

    listed = "\n".join(
        f"- {key}({', '.join(registry()[key].fields)}): {registry()[key].description}" for key in _keys()
    )
    text = f"Computes what a person gets from the palette: a finished text, and the results behind it.\n{listed}"
    return Tool("compute", text, Compute, compute, MOST_CHARACTERS)


def _keys() -> list[str]:
    return [item.key for item in registry().values() if item.area not in LEFT_OUT]
