"""Sentences as spans of words and typed values.

Whoever writes a sentence puts values into it, not digits; whoever shows it formats them (`formatting`): as plain text
(`str`), as HTML with the evidence behind each value (`experiments.templatetags.quantities`), as JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from string import Formatter
from typing import Annotated, Any, Self

from pydantic import GetCoreSchemaHandler, SerializationInfo, TypeAdapter
from pydantic_core import CoreSchema, core_schema

import formatting


@dataclass(frozen=True)
class Value:
    """One number of a sentence.

    label: what it is.  value: in SI, None where it was not measured.  unit: as `formatting.quantity` takes it.  origin:
    `measured`, `computed`, `predicted` or `sourced` (stated by the configuration or a document).  field: what it was
    written from: a panel of the diagnosis (`finding-2-1`, `kpi-mfu`) or a path in the plan, which contains a dot
    (`predicted.step_time_s.estimate`).
    """

    label: str
    value: float | None
    unit: str
    origin: str = "computed"
    field: str = dataclasses.field(default="", kw_only=True)

    @property
    def text(self) -> str:
        """With its unit after a no-break space: three significant digits, two where predicted."""
        if self.value is None:
            return "not measured"
        return str(formatting.by_origin(float(self.value), self.unit, self.origin))

    @property
    def panel(self) -> str:
        """The panel of the diagnosis that shows it; empty for what the plan holds."""
        return "" if "." in self.field else self.field

    def __str__(self) -> str:
        return self.text.replace(formatting.NBSP, " ")


class Sentence(str):
    """Spans of words and values; as a string, its plain text, so that whatever takes a string takes a sentence."""

    spans: tuple[str | Value, ...]

    def __new__(cls, *spans: object) -> Self:
        made = super().__new__(cls, "".join(map(str, spans)))
        whole = [span for part in spans for span in spans_of(part)]
        made.spans = tuple(
            span
            for is_value, group in groupby(whole, lambda span: isinstance(span, Value))
            for span in (group if is_value else ["".join(map(str, group))])
        )
        return made

    def __add__(self, other: str) -> Sentence:
        return Sentence(self, other)

    def __radd__(self, other: str) -> Sentence:
        return Sentence(other, self)


def spans_of(part: object) -> tuple[str | Value, ...]:
    """The spans of a sentence; anything else is words."""
    if isinstance(part, Sentence):
        return part.spans
    return (part,) if isinstance(part, Value) else (str(part),)


def say(template: str, *parts: object) -> Sentence:
    """`say("{} of {}", part, whole)`: a sentence in which each part stands for one pair of braces."""
    given = iter(parts)
    spans: list[object] = []
    for words, place, _, _ in Formatter().parse(template):
        spans += [words] if place is None else [words, next(given)]
    if next(given, None) is not None:
        raise ValueError(f"More parts than braces in {template!r}")
    return Sentence(*spans)


def join(separator: str, parts: Iterable[object]) -> Sentence:
    """`str.join` of sentences, values and words."""
    spans = [span for part in parts for span in (separator, part)]
    return Sentence(*spans[1:])


def values(*texts: str) -> list[Value]:
    """The values of sentences, each once, in order."""
    return list(dict.fromkeys(span for text in texts for span in spans_of(text) if isinstance(span, Value)))


def citing(text: str, rows: Mapping[Value, Value]) -> Sentence:
    """The same sentence, its values with the fields that their rows have."""
    return Sentence(
        *(
            Value(span.label, span.value, span.unit, span.origin, field=rows[span].field)
            if isinstance(span, Value) and span in rows
            else span
            for span in spans_of(text)
        )
    )


class _AsSpans:
    """How Pydantic reads and writes a sentence: a string where it is words alone, else the list of its spans."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _read, serialization=core_schema.plain_serializer_function_ser_schema(_write, info_arg=True)
        )


#: A field that holds a sentence.  A plain string is one span of words, which is how earlier versions stored them.
Text = Annotated[str, _AsSpans()]
#: Given to a serializer as its context, this writes sentences as their plain text.
PLAIN = {"sentences": "plain"}
_SPANS = TypeAdapter(list[Value | str])


def _read(data: object) -> Sentence:
    if isinstance(data, str):
        return data if isinstance(data, Sentence) else Sentence(data)
    return Sentence(*_SPANS.validate_python(data))


def _write(text: str, info: SerializationInfo) -> str | list[Any]:
    spans = spans_of(text)
    if info.context == PLAIN or not any(isinstance(span, Value) for span in spans):
        return str(text)
    return [span if isinstance(span, str) else _written(span) for span in spans]


def _written(value: Value) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(Value)}
