"""Answers in a schema: the words that ask a model for one, and how a text becomes a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agent.messages import JsonValue, clean
from agent.strict_json import loads
from agent.tools import complaints

A = TypeVar("A", bound=BaseModel)

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


class AnswerError(ValueError):
    """A text that is not an answer in the schema.  complaints: why, for the model."""

    def __init__(self, complaints: list[str]) -> None:
        self.complaints = complaints
        super().__init__("; ".join(complaints))


def instruction(schema: Mapping[str, JsonValue]) -> str:
    """Description of the schema for the model, also if the server gets it: some servers ignore it."""
    return (
        "Your final answer must be one JSON object that is valid under this JSON schema, with no text around it:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def parse(text: str, model: type[A]) -> A:
    """The answer in the text, also inside a code fence or between sentences.  AnswerError where there is none."""
    data = _object(text)
    if data is None:
        raise AnswerError(["The answer is not a JSON object."])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise AnswerError(complaints(error)) from None


def _object(text: str) -> dict[str, Any] | None:
    text = clean(text).strip()
    candidates = [text, *(match.strip() for match in _FENCE.findall(text))]
    start = text.find("{")
    if start >= 0:
        candidates.append(text[start : text.rfind("}") + 1])
    for candidate in candidates:
        try:
            parsed = loads(candidate)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            return parsed
    return None
