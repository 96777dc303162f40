"""Typed functions as tools of a language model, and its answers in a schema.

A `Tool` is a function of one pydantic model; the model's schema is what the language model may send.
A `ToolError`, and arguments that do not validate, go back to the model as a sentence.  Any other exception is our bug
and ends the run.  Results are JSON of bounded size, each with an id that references begin with; the model reads four
significant digits, the record has them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_jsonable_python

from agent.bounded import bounded
from agent.events import ToolReturned
from agent.messages import JsonValue, ToolCall
from agent.strict_json import loads
from formatting import did_you_mean
from formatting.text import clean, clean_json

A = TypeVar("A", bound=BaseModel)
#: Name of the tool by which an answer in a schema is given.
ANSWER = "answer"
#: Characters, or a function of the arguments that says how many.
Room = int | Callable[[Any], int]


class ToolError(Exception):
    """What the model did wrong, or what cannot be had, as one sentence for the model."""


class Arguments(BaseModel):
    """Base of a tool's arguments: a key that is not known is refused, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoArguments(Arguments):
    """A tool that takes nothing."""


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.  max_chars: of its result's JSON as the model sees it, which may depend on
    the arguments."""

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[[Any], object]
    max_chars: Room = 12_000

    def parameters(self) -> dict[str, JsonValue]:
        """JSON schema of the arguments."""
        return schema_of(self.arguments)


@cache
def schema_of(arguments: type[BaseModel]) -> dict[str, JsonValue]:
    """Return the JSON schema of a tool's arguments; made once, as every request sends those of all its tools."""
    schema = arguments.model_json_schema()
    schema.pop("description", None)
    return cast(dict[str, JsonValue], _terse(schema))


#: What every request would pay for although names say the same, and what is refused in a sentence where it is broken.
_LEFT_OUT = frozenset((
    "title", "default", "maxLength", "minLength", "maximum", "minimum", "exclusiveMinimum", "maxItems", "minItems",
))  # fmt: skip


def _terse(node: JsonValue, is_names: bool = False) -> JsonValue:
    """Return a schema in short; that an argument may be null is left out too, as it may be absent."""
    if isinstance(node, list):
        return [_terse(item) for item in node]
    if not isinstance(node, dict):
        return node
    if not is_names and isinstance(kinds := node.get("anyOf"), list) and {"type": "null"} in kinds and len(kinds) == 2:
        (kind,) = [each for each in kinds if isinstance(each, dict) and each != {"type": "null"}]
        node = {**kind, **{key: value for key, value in node.items() if key != "anyOf"}}
    kept = (
        (key, value)
        for key, value in node.items()
        if is_names or not (key in _LEFT_OUT or (key == "additionalProperties" and isinstance(value, bool)))
    )
    return {key: _terse(value, not is_names and key in ("properties", "$defs")) for key, value in kept}


def by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return the tools by name."""
    return {each.name: each for each in tools}


def call_tool(tools: dict[str, Tool], call: ToolCall, result_id: str, turn: int = 0) -> ToolReturned:
    """Run a call and return what came of it.  Raises whatever the tool raises, other than `ToolError`."""
    arguments: JsonValue = None
    try:
        used = tools.get(call.name)
        if used is None:
            raise ToolError(_unknown(call.name, tools))
        validated = _validated(used, call.arguments)
        arguments = validated.model_dump(mode="json")
        value = used.function(validated)
    except ToolError as error:
        return refused(str(error), call, result_id, turn, arguments)
    room = used.max_chars if isinstance(used.max_chars, int) else used.max_chars(validated)
    result, truncated = bounded(clean_json(to_jsonable_python(value)), room)
    return ToolReturned(turn, result_id, call.id, call.name, True, arguments, result, truncated)


def refused(sentence: str, call: ToolCall, result_id: str, turn: int, arguments: JsonValue = None) -> ToolReturned:
    """Return a call that came to nothing, and why."""
    return ToolReturned(turn, result_id, call.id, call.name, False, arguments, None, (), clean(sentence)[:2000])


def _unknown(name: str, tools: dict[str, Tool]) -> str:
    hint = did_you_mean(name, tools, most=1)
    offered = f"The tools are {', '.join(tools)}." if tools else "No tools are offered here."
    return f"There is no tool {name[:64]!r}.{hint} {offered}"


def _validated(used: Tool, text: str) -> BaseModel:
    try:
        return read(text.strip() or "{}", used.arguments)
    except AnswerError as error:
        raise ToolError(f"The arguments of {used.name} do not fit: {error}.") from None


def complaints(error: ValidationError) -> list[str]:
    """What does not fit a schema, one clause per place, at most ten."""
    errors = error.errors(include_url=False, include_context=False)
    sentences = []
    for each in errors[:10]:
        place = ".".join(str(part) for part in each["loc"]) or "the whole"
        given = "" if each["type"] == "missing" else f" (given: {_shown(each['input'])})"
        sentences.append(f"{place}: {each['msg'].removeprefix('Value error, ')}{given}")
    if len(errors) > 10:
        sentences.append(f"and {len(errors) - 10} more places")
    return sentences


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"


# Answers in a schema.


class AnswerError(ValueError):
    """A text that is not an answer in the schema.  complaints: why, for the model."""

    def __init__(self, complaints: list[str]) -> None:
        self.complaints = complaints
        super().__init__("; ".join(complaints))


def answer_tool(answer: type[BaseModel]) -> Tool:
    """Return the tool by which an answer in a schema is given; the loop reads its arguments and never runs it."""
    return Tool(ANSWER, f"Gives the final answer; call it alone, once. {getdoc(answer) or ''}", answer, lambda _: None)


def parse(text: str, model: type[A]) -> A:
    """The answer in a call's arguments, or in a text around them.  AnswerError where there is none."""
    return read(clean(text)[text.find("{") : text.rfind("}") + 1] or "null", model)


def read(text: str, model: type[A]) -> A:
    """The value of a schema that is written in JSON.  Raises AnswerError."""
    try:
        return model.model_validate(loads(text))
    except ValidationError as error:
        raise AnswerError(complaints(error)) from None
    except ValueError as error:
        raise AnswerError([f"it is not valid JSON ({error}); send one JSON object"]) from None
