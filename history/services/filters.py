"""Filters and sort order of a list of records, as in a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from accounts.text import whole_number
from experiments.services.text import clean

#: `effect` is the fastest first, `worst` the failed and slowest first.
SORTS = ("relevance", "effect", "worst", "newest")
#: Facets of which several values may be chosen; each is a parameter that may be repeated.
CHOICES = ("bottleneck", "hardware", "chip", "family", "model", "change", "outcome", "provenance")
MAX_SIZE = 100
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Position:
    """A place in a sorted list: the value sorted by and the row, whose number among the matches is `number`."""

    order: float
    pk: int
    number: int

    def __str__(self) -> str:
        return f"{self.order!r}_{self.pk}_{self.number}"

    @classmethod
    def read(cls, text: str) -> Position | None:
        """The position that an address names; None for anything else."""
        try:
            first, *rest = text.split("_")
            order = float(first)
            pk, number = (whole_number(each) for each in rest)
        except ValueError:
            return None
        if pk is None or number is None or not (isfinite(order) and 0 < number <= LARGEST):
            return None
        return cls(order, pk, number)


@dataclass(frozen=True)
class Filters:
    """Values of one facet are alternatives, facets narrow each other.  chips_min, chips_max: inclusive.

    after, before: where the page begins or ends; of the two only one is given.
    """

    q: str = ""
    bottleneck: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    chip: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    chips_min: int | None = None
    chips_max: int | None = None
    sort: str = "newest"
    size: int = 25
    after: Position | None = None
    before: Position | None = None

    @classmethod
    def read(cls, query: QueryDict) -> Filters:
        """Filters of an address; what cannot be understood is left out."""
        q = clean(query.get("q") or "").strip()[:1000]
        sort = query.get("sort") or ""
        if sort not in SORTS or (sort == "relevance" and not q):
            sort = "relevance" if q else "newest"
        size = whole_number(query.get("size", "").strip(), 9)
        before = Position.read(query.get("before") or "")
        return cls(
            q=q,
            **{name: _values(query.getlist(name)) for name in CHOICES},
            chips_min=whole_number(query.get("chips_min", "").strip(), 9),
            chips_max=whole_number(query.get("chips_max", "").strip(), 9),
            sort=sort,
            size=min(size, MAX_SIZE) if size else 25,
            before=before,
            after=None if before else Position.read(query.get("after") or ""),
        )

    @property
    def by_effect(self) -> bool:
        return self.sort in ("effect", "worst")

    @property
    def chosen(self) -> tuple[str, ...]:
        """Facets with a chosen value; `size` where a range of chips is given."""
        sized = self.chips_min is not None or self.chips_max is not None
        return (*(name for name in CHOICES if getattr(self, name)), *(("size",) if sized else ()))

    @property
    def narrows(self) -> bool:
        return bool(self.chosen)

    def without(self, facet: str) -> Filters:
        """The same with nothing chosen of one facet, from the first page."""
        change: dict[str, Any] = {"chips_min": None, "chips_max": None} if facet == "size" else {facet: ()}
        return replace(self, after=None, before=None, **change)

    def toggled(self, facet: str, value: str) -> Filters:
        """The same with one value of a facet chosen, or not any more, from the first page."""
        values = getattr(self, facet)
        values = tuple(item for item in values if item != value) if value in values else (*values, value)
        change: dict[str, Any] = {facet: values}
        return replace(self, after=None, before=None, **change)

    def sized(self, low: int | None, high: int | None) -> Filters:
        """The same with another range of chips, from the first page."""
        return replace(self, after=None, before=None, chips_min=low, chips_max=high)

    def at(self, *, after: Position | None = None, before: Position | None = None) -> Filters:
        return replace(self, after=after, before=before)

    def query(self) -> str:
        """The address's query, without its question mark; `Filters.read` takes it back."""
        plain = Filters(q=self.q, sort="relevance" if self.q else "newest")
        given: Mapping[str, Any] = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != getattr(plain, field.name) or (field.name == "q" and value)
        }
        return urlencode(given, doseq=True)


def _values(given: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(clean(value).strip()[:100] for value in given if value.strip()))[:50]
