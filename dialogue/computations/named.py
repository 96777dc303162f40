"""Results of tools in the templates of answers: they decide by their values, and print as references to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django import template

from experiments import bars
from proposals.agents.tool_result import members_of, written
from proposals.agents.tools.look import NOTABLE
from proposals.agents.tools.shared import OTHER_WORK
from proposals.facts import setting

register = template.Library()
#: Shares (0–1) of a step from which a changed part is worth a row.
LISTED = 0.005
_MARKUP = re.compile(r"[^\w +.,-]")


class Named:
    """A part of a result at a path.  What is not known prints as a dash."""

    def __init__(self, item: Any, path: str) -> None:
        self.item, self.path = item, path

    def __getitem__(self, key: str | int) -> Named:
        if isinstance(key, int):
            return Named(self.item[key], f"{self.path}[{key}]")
        members = dict(members_of(self.item))
        if not members or (key == "items" and key not in members):
            raise KeyError(key)  # no mapping, or its method; what else it lacks is not known
        return Named(members.get(key), f"{self.path}.{written(key)}")

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.item, list | tuple):
            return (self[place] for place in range(len(self.item)))
        return iter(self.item or ())

    def items(self) -> Iterator[tuple[str, Named]]:
        """Yield (key, value) of a mapping."""
        return ((key, self[key]) for key in self.item or ())

    def __bool__(self) -> bool:
        return bool(self.item)

    def __eq__(self, other: object) -> bool:
        return bool(self.item == _item(other))

    def __hash__(self) -> int:
        return hash(self.path)

    def __lt__(self, other: object) -> bool:
        return None not in (self.item, _item(other)) and self.item < _item(other)

    def __gt__(self, other: object) -> bool:
        return None not in (self.item, _item(other)) and self.item > _item(other)

    def __le__(self, other: object) -> bool:
        return self == other or self < other

    def __ge__(self, other: object) -> bool:
        return self == other or self > other

    def __str__(self) -> str:
        return "–" if self.item is None else f"{{{self.path}}}"


def _item(value: object) -> Any:
    return value.item if isinstance(value, Named) else value


@register.filter
def path(value: Named) -> str:
    """Return the path, for an expression."""
    return value.path


@register.filter
def raw(value: Named) -> object:
    """Return a whole number as it is: an ordinal, or a count in words; other values by reference."""
    return value.item if isinstance(value.item, int) else value


@register.filter
def at(values: Named, key: object) -> Named:
    """Return the member of a mapping, None where there is none."""
    name = str(_item(key))
    return values[name] if name in (values.item or {}) else Named(None, values.path)


@register.filter
def part_name(key: object) -> str:
    """Return a part of the step or of memory within a sentence, without markup."""
    label = bars.term(str(_item(key)), 0.0).label.lower().replace("dcn", "DCN").replace("hbm", "HBM")
    return _MARKUP.sub("", label)


@register.filter
def in_words(key: object) -> str:
    """Return the key of a setting or rule in words."""
    return _MARKUP.sub("", setting(str(_item(key))))


@register.filter
def numbered(rows: Named, number: object) -> Named | None:
    """Return the row with a number."""
    return next((row for row in rows if row["number"] == number), None)


@register.filter
def notably(one: Named, other: Named) -> bool:
    """Return True if a number is larger by more than rounding."""
    return (one.item or 0.0) > (other.item or 0.0) * NOTABLE


@register.filter
def differing(one: Named, other: Named) -> list[str]:
    """Return the parts in which two configurations differ, the largest change first; none where their steps do other
    work."""
    changes = [(each["changes"].item or {}).items() for each in (one, other)]
    work = [{key: value for key, value in each if key in OTHER_WORK} for each in changes]
    then, now = one["terms_s"].item, other["terms_s"].item
    if work[0] != work[1] or not then or not now:
        return []
    change = {key: abs(then.get(key, 0.0) - now.get(key, 0.0)) for key in dict.fromkeys((*then, *now))}
    least = LISTED * sum(now.values())
    return sorted((key for key in change if change[key] >= least), key=lambda key: -change[key])
