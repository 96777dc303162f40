"""Facets of a list: the values that its filters may take, each with the number of rows it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet

from accounts.filters import Filters


@dataclass(frozen=True)
class FacetValue:
    value: str
    label: str
    count: int | None  # None: not counted
    chosen: bool
    query: str  # of the address with this value chosen, or no longer


@dataclass(frozen=True)
class Facet:
    name: str
    title: str
    values: tuple[FacetValue, ...]


def count_values(rows: QuerySet[Any], *columns: str) -> dict[str, Counter[Any]]:
    """Return, by column, the number of rows by value, or by member where it is a column of lists; blank ones left out.

    The rows are read once for all columns.
    """
    counts: dict[str, Counter[Any]] = {column: Counter() for column in columns}
    try:
        inner, parameters = rows.order_by().values(*columns).query.sql_with_params()
    except EmptyResultSet:
        return counts
    sets = ", ".join(f"({column})" for column in columns)
    with connection.cursor() as cursor:
        names = ", ".join(columns)
        cursor.execute(f"SELECT {names}, count(*) FROM ({inner}) r GROUP BY GROUPING SETS ({sets})", parameters)
        for *values, n in cursor.fetchall():
            # Only the column that a set groups by has a value.
            for column, value in zip(columns, values, strict=True):
                members = value if isinstance(value, list) else [value]
                counts[column].update({member: n for member in members if member not in ("", None)})
    return counts


def in_order(counts: Mapping[Any, int], first: Iterable[Any] = ()) -> list[Any]:
    """Return the values in the given order, then the others, the most frequent first."""
    place = {value: number for number, value in enumerate(first)}
    return sorted(counts, key=lambda value: (place.get(value, len(place)), -counts[value], value))


def chips(facets: Iterable[Facet]) -> list[tuple[str, str]]:
    """Return every chosen value as (label, query of the address without it)."""
    return [(value.label, value.query) for facet in facets for value in facet.values if value.chosen]


def facet(
    filters: Filters, name: str, title: str, labels: Mapping[Any, str], counts: Mapping[Any, int | None]
) -> Facet:
    """Return the facet of the filter `name` with the values of `labels`, in their order."""
    asked = filters.asked[name]
    chosen = asked if isinstance(asked, list) else [asked]
    values = (
        FacetValue(str(value), label, counts.get(value), value in chosen, filters.toggled(name, value))
        for value, label in labels.items()
    )
    return Facet(name, title, tuple(values))
