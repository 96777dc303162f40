"""What records are counted and narrowed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet, Sum

from history.models import FacetCount
from history.record import BOTTLENECKS, CHANGES, OUTCOMES, PROVENANCES
from history.services.filters import CHOICES, Filters

#: Ranges of chips, both ends inclusive; the last has no end.
SIZES = ((1, 8), (9, 64), (65, 256), (257, 1024), (1025, None))


@dataclass(frozen=True)
class Kind:
    """One thing to narrow by.  column: of the tables; order: of its values, the most frequent first where empty."""

    title: str
    column: str
    order: tuple[str, ...] = ()

    def values(self, record: Any) -> list[str]:
        """The values that one record counts for."""
        value = getattr(record, self.column)
        if self.column == "chips":
            return [name] if (name := size_of(value)) else []
        return [str(item) for item in (value if isinstance(value, list) else [value]) if item]


@dataclass(frozen=True)
class Value:
    """One value of a facet.  label: for people; chosen: the list is narrowed to it; filters: with it toggled.

    count: None where it is not counted: beside a chosen value under a query in words, where another search would tell.
    """

    value: str
    label: str
    count: int | None
    chosen: bool
    filters: Filters


@dataclass(frozen=True)
class Facet:
    name: str
    title: str
    values: tuple[Value, ...]


def size_name(low: int, high: int | None) -> str:
    return f"{low}-{high}" if high else f"{low}-"


def size_of(chips: int | None) -> str:
    """The range that a number of chips is in; empty where it is not known."""
    if chips is None:
        return ""
    return next((size_name(low, high) for low, high in SIZES if low <= chips and (high is None or chips <= high)), "")


FACETS: Mapping[str, Kind] = {
    "bottleneck": Kind("Bottleneck", "bottleneck", tuple(filter(None, BOTTLENECKS))),
    "hardware": Kind("Hardware type", "hardware"),
    "chip": Kind("Hardware", "chip"),
    "size": Kind("Chips", "chips", tuple(size_name(*size) for size in SIZES)),
    "family": Kind("Model family", "model_family"),
    "model": Kind("Model", "model_name"),
    "change": Kind("Change", "changes", CHANGES),
    "outcome": Kind("Outcome", "outcome", OUTCOMES),
    "provenance": Kind("Origin", "provenance", PROVENANCES),
}
_LABELS = {
    "tpu": "TPU", "gpu": "GPU", "xla_flags": "XLA flags", "measured": "measured here", "memory": "HBM bandwidth",
}  # fmt: skip


def narrowing(filters: Filters) -> Q:
    """The condition on a record, or on a count of records, that the chosen values make."""
    parts = [Q()]
    for name in CHOICES:
        if values := getattr(filters, name):
            column = FACETS[name].column
            parts.append(Q(**{f"{column}__{'overlap' if name == 'change' else 'in'}": list(values)}))
    if filters.chips_min is not None:
        parts.append(Q(chips__gte=filters.chips_min))
    if filters.chips_max is not None:
        parts.append(Q(chips__lte=filters.chips_max))
    return reduce(and_, parts)


def count(counts: QuerySet[FacetCount]) -> int:
    return counts.aggregate(n=Sum("count"))["n"] or 0


def counted(counts: QuerySet[FacetCount], filters: Filters) -> dict[str, dict[str, int]]:
    """{facet: {value: records}} under the filters; of a facet with chosen values as if none of it were chosen."""
    counted_by_facet = _grouped(
        counts.filter(narrowing(filters)), [name for name in FACETS if name not in filters.chosen]
    )
    for name in filters.chosen:
        counted_by_facet |= _grouped(counts.filter(narrowing(filters.without(name))), [name])
    return counted_by_facet


_SIZE_SQL = (
    "CASE "
    + " ".join(
        f"WHEN chips >= {low}{f' AND chips <= {high}' if high else ''} THEN '{size_name(low, high)}'"
        for low, high in SIZES
    )
    + " END"
)


def _grouped(counts: QuerySet[FacetCount], names: list[str]) -> dict[str, dict[str, int]]:
    """Counts of several facets in one reading of the table; blank values are left out."""
    by_facet: dict[str, dict[str, int]] = {name: {} for name in names}
    columns = {name: _SIZE_SQL if name == "size" else FACETS[name].column for name in names if name != "change"}
    inner, parameters = counts.order_by().values(*_COLUMNS, "count").query.sql_with_params()
    with connection.cursor() as cursor:
        if columns:
            sets = ", ".join(f"({number})" for number in range(1, len(columns) + 1))
            wanted = ", ".join(columns.values())
            which = ", ".join(f"grouping({sql})" for sql in columns.values())
            cursor.execute(
                f"SELECT {wanted}, {which}, sum(count) FROM ({inner}) c GROUP BY GROUPING SETS ({sets})", parameters
            )
            width = len(columns)
            for row in cursor.fetchall():
                at = row[width : 2 * width].index(0)
                if row[at]:
                    by_facet[list(columns)[at]][str(row[at])] = int(row[-1])
        if "change" in names:
            cursor.execute(
                f"SELECT kind, sum(count) FROM ({inner}) c, unnest(changes) AS kind GROUP BY kind", parameters
            )
            by_facet["change"] = {kind: int(number) for kind, number in cursor.fetchall()}
    return by_facet


_COLUMNS = tuple(dict.fromkeys(kind.column for kind in FACETS.values()))


def alternatives(counts: QuerySet[FacetCount], filters: Filters) -> dict[str, dict[str, int]]:
    """Of each facet with chosen values, what the other facets leave, whatever the query in words."""
    return {name: _grouped(counts.filter(narrowing(filters.without(name))), [name])[name] for name in filters.chosen}


def presented(
    counts: Mapping[str, Mapping[str, int]],
    filters: Filters,
    others: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[Facet, ...]:
    """The facets in their order, without those that have no value; what is chosen is there even where it counts 0.

    others: further values of facets with a chosen one, whose records were not counted; their numbers only sort them.
    """
    facets = []
    for name, kind in FACETS.items():
        chosen = getattr(filters, name) if name in CHOICES else _chosen_sizes(filters)
        numbers = {**dict.fromkeys(chosen, 0), **counts.get(name, {})}
        uncounted = others.get(name, {}) if others else {}
        if name in (others or {}):
            numbers = {value: number for value, number in numbers.items() if value in chosen}
        place = {value: number for number, value in enumerate(kind.order)}
        frequency = {**numbers, **uncounted}
        ordered = sorted(frequency, key=lambda v: (place.get(v, len(place)), -frequency[v], v))
        values = tuple(
            Value(value, label(name, value), numbers.get(value), value in chosen, _toggled(filters, name, value))
            for value in ordered
        )
        if values:
            facets.append(Facet(name, kind.title, values))
    return tuple(facets)


def label(facet: str, value: str) -> str:
    """A facet's value for people."""
    if facet == "size":
        low, _, high = value.partition("-")
        return f"{int(low):,}–{int(high):,}" if high else f"{int(low):,} or more"
    if facet in ("chip", "model", "family"):
        return value
    return _LABELS.get(value, value.replace("_", " "))


def _chosen_sizes(filters: Filters) -> tuple[str, ...]:
    for low, high in SIZES:
        if (filters.chips_min, filters.chips_max) == (low, high):
            return (size_name(low, high),)
    return ()


def _toggled(filters: Filters, name: str, value: str) -> Filters:
    if name != "size":
        return filters.toggled(name, value)
    if value in _chosen_sizes(filters):
        return filters.without("size")
    low, _, high = value.partition("-")
    return filters.sized(int(low), int(high) if high else None)
