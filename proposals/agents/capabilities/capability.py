"""What can be computed for a run, one Capability each: the palette, REST, language models and the built-in reasoner
offer
the same list, and answer through the same functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import ValidationError

from agent.tools import Arguments, NoArguments, ToolError, complaints
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.conversation import Question, Said

Function = Callable[[AnswerContext, Any], Answer]


@dataclass(frozen=True)
class Capability:
    """Something that can be computed.

    key: its name in addresses and for models.  title: what it answers, the first line of each answer.  description: one
    sentence.  examples: questions that ask for it.  arguments: its form's fields, and the schema for models and REST.
    area: the group in which the palette lists it.
    """

    key: str
    title: str
    description: str
    examples: tuple[str, ...]
    arguments: type[Arguments]
    function: Function
    area: str

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.arguments.model_fields)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, field in self.arguments.model_fields.items() if field.is_required())


class Missing(ToolError):
    """A value without which a capability has nothing to compute.

    The text says which; options: messages with the value filled in, to be clicked."""

    def __init__(self, sentence: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.options = options


_REGISTRY: dict[str, Capability] = {}


def capability(title: str, *examples: str) -> Callable[[Function], Function]:
    """Enters a function of (ctx, arguments); its name is the key, its docstring the description, its module the
    area."""

    def enter(function: Function) -> Function:
        key = function.__name__
        if key in _REGISTRY:
            raise ValueError(f"Two capabilities are called {key}.")
        hints = get_type_hints(function)
        given = list(inspect.signature(function).parameters)[1]
        text = " ".join(inspect.cleandoc(function.__doc__ or "").split())
        area = function.__module__.rpartition(".")[2]
        _REGISTRY[key] = Capability(key, title, text, examples, hints.get(given, NoArguments), function, area)
        return function

    return enter


def registry() -> dict[str, Capability]:
    """All that have been entered, by key; `proposals.agents.capabilities` enters them."""
    return _REGISTRY


def arguments(of: Capability, values: dict[str, Any]) -> Arguments:
    """The values as its arguments.  Raises ToolError with one sentence where they do not fit."""
    try:
        return of.arguments.model_validate(values)
    except ValidationError as error:
        lacking = [str(e["loc"][0]) for e in error.errors() if e["type"] == "missing"]
        if lacking:
            names = " and ".join(name.replace("_", " ") for name in lacking)
            raise Missing(f"This needs a value for {names}.") from None
        raise ToolError(f"{'; '.join(complaints(error))}.") from None


def answer(ctx: AnswerContext, of: Capability, given: Arguments) -> Iterator[Said]:
    """The answer, beginning with what it answers; what cannot be computed is said in a sentence."""
    yield from ctx.say(f"**{of.title}:**")
    try:
        yield from of.function(ctx, given)
    except Missing as error:
        yield from ask(ctx, str(error), error.options)
    except ToolError as error:
        yield from ctx.say(str(error))


def ask(ctx: AnswerContext, sentence: str, options: tuple[str, ...]) -> Answer:
    """A question back, with choices to click."""
    yield from ctx.say(sentence)
    if options:
        yield Question(sentence, options)


def command(of: Capability, values: dict[str, Any]) -> str:
    """A message that asks for exactly this: `Price of a mesh: mesh = fsdp=32,tp=8; batch = 512`."""
    given = "; ".join(
        f"{name} = {_plain(value)}" for name, value in values.items() if value not in (None, "", (), [], False)
    )
    return f"{of.title}: {given}" if given else f"{of.title}:"


def _plain(value: Any) -> str:
    """A value without semicolons, which separate values; texts with commas of their own are parted by bars."""
    if isinstance(value, list | tuple):
        parts = [_plain(each) for each in value]
        return (" | " if any("," in part for part in parts) else ", ").join(parts)
    return str(value).replace(";", ",")
