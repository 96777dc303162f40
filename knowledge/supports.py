"""What a passage may be cited for, and when: one line of its `supports` key (knowledge/passages/README.md).

`model down if was_model > was_tensor_bound and tensor_share >= 0.05: the degree is above what the width hides` says of
which change (or verdict) in which direction the passage speaks, what must hold, and in words what it supports.  Who
cites knows the quantities; here is only the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt

#: Directions by what a passage may be cited for: axes by role, settings, and what the proposal answers.
DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("data", "seq", "model", "expert", "pipeline", "replica", "global_batch", "accumulation", "remat",
         "weight_sharding", "virtual_stages"),
        ("up", "down", "any"),
    ),
    "verdict": ("compute", "memory", "communication", "input", "host", "idle"),
    "keep": ("any",),
}  # fmt: skip

#: A quantity: a number, a word, several words, or None where it is not known.
Quantity = float | str | frozenset[str] | None

_LINE = re.compile(r"(?P<subject>\w+) (?P<direction>\w+)(?: if (?P<conditions>[^:]+))?: (?P<words>\S.*)")
_CONDITION = re.compile(r"(?P<name>[a-z]\w*) (?P<operator><=|>=|!=|=|<|>) (?P<value>[\w.|-]+)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ORDER: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class SupportError(ValueError):
    """A line is not as the grammar says, in a sentence."""


@dataclass(frozen=True)
class Condition:
    """`name operator value`.  value: a number, the name of another quantity, or, after = and !=, words, one of which
    the quantity is or holds."""

    name: str
    operator: str
    value: float | str | frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities that it compares."""
        return (self.name, self.value) if isinstance(self.value, str) else (self.name,)

    def holds(self, of: Callable[[str], Quantity]) -> bool:
        """What is not known holds nowhere."""
        left = of(self.name)
        right = of(self.value) if isinstance(self.value, str) else self.value
        if left is None or right is None:
            return False
        if self.operator in _ORDER:
            return isinstance(left, float) and isinstance(right, float) and _ORDER[self.operator](left, right)
        if isinstance(right, frozenset):
            same = bool((left if isinstance(left, frozenset) else {left}) & right)
        else:
            same = left == right
        return same == (self.operator == "=")


@dataclass(frozen=True)
class Support:
    """One line.  words: what the passage says for it, a clause that continues `model 4 → 2: …`."""

    subject: str
    direction: str
    conditions: tuple[Condition, ...]
    words: str

    def bears_on(self, subject: str, direction: str) -> bool:
        return self.subject == subject and self.direction in ("any", direction)

    def holds(self, of: Callable[[str], Quantity]) -> bool:
        return all(condition.holds(of) for condition in self.conditions)


def read(line: str) -> Support:
    """Raises SupportError."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise SupportError(f"supports has {line!r}; write change direction if condition and …: statement")
    subject, direction = match["subject"], match["direction"]
    if subject not in DIRECTIONS:
        raise SupportError(f"supports names {subject!r}; known: {', '.join(DIRECTIONS)}")
    if direction not in DIRECTIONS[subject]:
        raise SupportError(f"{subject} has no direction {direction!r}; known: {', '.join(DIRECTIONS[subject])}")
    asked = conditions(match["conditions"]) if match["conditions"] else ()
    return Support(subject, direction, asked, match["words"])


def conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of `one and another`, all of which must hold.  Raises SupportError."""
    return tuple(_condition(each.strip()) for each in text.split(" and "))


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise SupportError(f"{text!r} is not a condition; write quantity operator value")
    operator, value = match["operator"], match["value"]
    if _NUMBER.fullmatch(value):
        return Condition(match["name"], operator, float(value))
    if operator in _ORDER:
        return Condition(match["name"], operator, value)
    return Condition(match["name"], operator, frozenset(value.split("|")))
