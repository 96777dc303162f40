"""Paths into results: what stands at one, and which paths exist near a wrong one.

Unit, origin, subject and link come from the structure of the result: names of keys, `tool_result.KEYS`, what a row
says of itself (`ABOUT`), or its own `unit`, `origin` and `label`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any

from experiments.sentences import Sentence
from formatting import NBSP
from perfmodel.config import mesh_text
from proposals.agents.tool_result import KEYS, Is, about_of, members_of, written
from proposals.agents.values import ORIGINS, Value, unit_of, words_of

#: Paths looked at for a wrong one, and of them shown.
MOST_PATHS = 4_000
NEAREST = 3
#: Keys that add nothing to what a value is of.
_SILENT = ("estimate", "value")
_ENDS = {
    "low80": "lower end of the 80 % interval", "high80": "upper end of the 80 % interval",
    "lower": "lower bound", "upper": "upper bound",
}  # fmt: skip
_ORIGIN_WORDS = {"sourced": "stated"}


class PathError(ValueError):
    """A reference that leads nowhere, in one sentence without its full stop."""


@dataclass(frozen=True)
class Node:
    """What stands at a path.  words: what it is within `subject`."""

    item: Any
    path: str
    unit: str = ""
    origin: str = "computed"
    subject: str = ""
    href: str = ""
    words: tuple[str, ...] = ()
    inside: Any = None  # what holds it, for the interval of an estimate

    @classmethod
    def of(cls, item: object, name: str) -> Node:
        return cls(item, name)._entered()

    def child(self, key: str | int) -> Node | None:
        """Return what stands at a key or index; None if nothing does."""
        if isinstance(key, int):
            rows = self.item
            if not isinstance(rows, list | tuple) or not 0 <= key < len(rows):
                return None
            return replace(self, item=rows[key], path=f"{self.path}[{key}]", inside=rows)._entered(f"{key + 1}")
        members = dict(members_of(self.item))
        name = key if key in members else next((each for each in members if written(each) == key), None)
        if name is None or members[name] is None:
            return None
        declared = KEYS.get(name, Is())
        unit = declared.unit if declared.unit is not None else unit_of(name)
        if unit is None:
            unit = _text(self.item, "unit") or self.unit
        word = declared.subject if declared.subject is not None else _ENDS.get(name) or words_of(name)
        node = replace(
            self, item=members[name], path=f"{self.path}.{written(name)}", unit=unit, inside=self.item,
            origin=about_of(self.item).get(name) or declared.origin or self.origin,
            words=self.words if name in _SILENT or not word else (*self.words, word),
        )  # fmt: skip
        return node._entered()

    def only_grandchild(self, key: str | int) -> Node | None:
        """Return what stands at a key of one part alone; None where none has it, or several."""
        parts = [part for name, _ in members_of(self.item) if isinstance(key, str) and (part := self.child(name))]
        found = [node for part in parts if (node := part.child(key))]
        return found[0] if len(found) == 1 else None

    def _entered(self, number: str = "") -> Node:
        """With what the item says of itself.  number: of a row in a list."""
        about = about_of(self.item)
        if isinstance(self.item, str | int | float | bool):
            return self
        origin = about.get("origin") or _ORIGIN_WORDS.get(_text(self.item, "origin"), _text(self.item, "origin"))
        labels = (about.get("subject"), *(_text(self.item, name) for name in ("label", "title", "name")))
        named = next(filter(None, labels), "")
        node = replace(self, origin=origin if origin in ORIGINS else self.origin, href=about.get("href") or self.href)
        if named:
            return replace(node, subject=named, words=())
        return replace(node, words=(*node.words, number)) if number and node.words else node

    def values(self) -> tuple[Value, ...]:
        """Return what is to be printed: a stored sentence as its spans, each number with its own origin."""
        if not isinstance(self.item, Sentence):
            return (self.value(),)
        return tuple(
            Value(span.replace("`", ""), origin="stated")
            if isinstance(span, str)
            else Value(
                span.text if span.value is None else span.value, span.unit, _ORIGIN_WORDS.get(span.origin, span.origin),  # type: ignore[arg-type]
                span.label, self.href,
            )
            for span in self.item.spans
        )  # fmt: skip

    @property
    def named(self) -> str:
        """Return what it is of: the subject of its row, and the words of its keys."""
        return " · ".join(part for part in (self.subject, " ".join(self.words)) if part)

    def value(self) -> Value:
        """Return the value to be printed.  Raises PathError for what is no value."""
        item, low, high, in_text = self.item, None, None, False
        if (estimate := _get(item, "estimate")) is not None:
            low, high, in_text, item = _get(item, "low80"), _get(item, "high80"), True, estimate
        elif self.path.endswith(".estimate"):
            low, high = _get(self.inside, "low80"), _get(self.inside, "high80")
        if isinstance(item, bool):
            item = "yes" if item else "no"
        elif isinstance(item, str):
            item = item.replace("`", "")  # it is put in after the Markdown is read
        elif not isinstance(item, int | float | str):
            item = self._words(item)
        return Value(item, "" if isinstance(item, str) else self.unit, self.origin, self.named,  # type: ignore[arg-type]
                     self.href, low=low, high=high, in_text=in_text)  # fmt: skip

    def _words(self, item: Any) -> str:
        if isinstance(item, Mapping):
            if item and all(isinstance(value, int | str) for value in item.values()):
                return " · ".join(f"{key} {value}" for key, value in item.items())
            if set(item) <= {"ici", "dcn"} and item:
                return mesh_text(item)
        if isinstance(item, list | tuple) and item and all(isinstance(each, str | int) for each in item):
            return ", ".join(map(str, item))
        keys = [written(name) for name, value in members_of(item) if value is not None]
        inside = f"; it holds {', '.join(keys[:12])}" if keys else f" but a list of {len(item)}" if item else ""
        raise PathError(f"{self.path} is no single value{inside}")

    def quoted(self, words: str) -> Value:
        """Return words of the item's text.  Raises PathError where it does not contain them."""
        wanted = _flat(words)
        if not any(wanted in _flat(text) for text in _texts(self.item)):
            raise PathError(f"“{words[:60]}” does not occur in {self.path}")
        words = words.replace("\\n", " ")
        return Value(words, origin="stated", subject=self.named or self.path, href=self.href)


def nearest(results: Mapping[str, object], name: str, path: Sequence[str]) -> list[str]:
    """Return the paths of a result that exist and are nearest to a wrong one; those that end alike first."""
    wanted, last = ".".join((name, *path)), path[-1]
    every = list(dict.fromkeys(islice(_paths(results[name], name), MOST_PATHS)))
    alike = [each for each in every if re.split(r"[.\[\]]+", each)[-1] == last]
    near = (each for of in (alike, every) for each in get_close_matches(wanted, of, NEAREST, 0.0))
    return list(dict.fromkeys(near))[:NEAREST]


def _paths(item: Any, path: str, depth: int = 0) -> Iterator[str]:
    """Yield the paths of the values in a result, and of estimates."""
    if item is None or depth > 12:
        return
    is_list = isinstance(item, list | tuple)
    inside = [(f"{path}.{written(name)}", value) for name, value in members_of(item)]
    inside += [(f"{path}[{index}]", row) for index, row in enumerate(item[:50] if is_list else ())]
    if not (inside or is_list) or _get(item, "estimate") is not None:
        yield path
    for place, value in inside:
        yield from _paths(value, place, depth + 1)


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else None


def _text(item: Any, name: str) -> str:
    value = _get(item, name)
    return value if isinstance(value, str) else ""


def _texts(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    elif isinstance(item, list | tuple):
        for each in item:
            yield from _texts(each)
    else:
        for _, value in members_of(item):
            yield from _texts(value)


def _flat(text: str) -> str:
    return " ".join(text.replace(NBSP, " ").replace("\\n", " ").replace(",", "").split()).casefold()
