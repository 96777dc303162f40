"""The list of records: narrowed by facets, by words and meaning, sorted, in pages; and how many there are of each kind.

Without a query the counts come from `FacetCount` and a page from an index, so both stay fast however many records there
are.  With a query the best `POOL` of the records that the facets leave are the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import connection, transaction
from django.db.models import BigIntegerField, BooleanField, F, Func, Q, QuerySet, Value

from accounts.models import Team
from history.models import FacetCount, HistoryRecord
from history.services import words
from history.services.facets import FACETS, Facet, alternatives, count, counted, narrowing, presented
from history.services.filters import Filters, Position
from knowledge.retrieval import Hit, retrieve

#: So many records at most are the answer to a query in words.
POOL = 100
#: What only the vector finds counts as found up to so far below the nearest record, in cosine similarity.
NEAR = 0.2
#: Up to so many matches are all read and sorted; more are taken in the order of an index.
FEW = 2000
#: Columns that no list shows.
UNSEEN = ("embedding", "search", "keywords", "remarks", "extra")


@dataclass(frozen=True)
class Listed:
    """A record in a list.  hit: why it answers the query, None without one."""

    record: HistoryRecord
    hit: Hit | None = None


@dataclass(frozen=True)
class Page:
    """One page of the optimization database as a team sees it.

    total: records that match; available: all that the team sees.  first: number of the first row among the matches,
    from 1; next, previous: filters of the neighbouring pages.  bounded: the query has more matches than `total`, which
    are the best of them.  notes: sentences for the reader, e.g. that meaning could not be compared.
    """

    rows: tuple[Listed, ...]
    total: int
    available: int
    facets: tuple[Facet, ...]
    filters: Filters
    first: int
    next: Filters | None
    previous: Filters | None
    bounded: bool = False
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


def visible(teams: Team | Iterable[int]) -> QuerySet[HistoryRecord]:
    """The shipped records and those of the teams."""
    return HistoryRecord.objects.filter(_of(_ids(teams))).defer(*UNSEEN)


def of_key(team: Team | int, key: str) -> HistoryRecord | None:
    """The record that a team means by an id: its own before one that ships with the product."""
    return (
        visible([team] if isinstance(team, int) else team)
        .filter(key=key)
        .order_by(F("team_id").asc(nulls_last=True))
        .first()
    )


def page(teams: Team | Iterable[int], filters: Filters) -> Page:
    """The page that the filters ask for, with its facets."""
    ids = _ids(teams)
    counts = FacetCount.objects.filter(_of(ids))
    available = count(counts)
    if filters.q:
        return _ranked_page(ids, filters, available)
    total = count(counts.filter(narrowing(filters))) if filters.narrows else available
    rows, first, more_after, more_before = _in_order(ids, filters, total)
    return Page(
        tuple(Listed(row) for row in rows),
        total,
        available,
        presented(counted(counts, filters), filters),
        filters,
        first,
        filters.at(after=_position(rows[-1], filters, first + len(rows) - 1)) if more_after else None,
        filters.at(before=_position(rows[0], filters, first)) if more_before else None,
    )


def narrowed(teams: Team | Iterable[int], filters: Filters) -> QuerySet[HistoryRecord]:
    """All records that the facets leave, whole, newest first; a query in words is not looked at."""
    return HistoryRecord.objects.filter(_of(_ids(teams)), narrowing(filters)).defer("embedding", "search")


def found_by(teams: Team | Iterable[int], filters: Filters) -> list[HistoryRecord]:
    """The whole records that answer a query in words, the best first."""
    hits, _ = _pool(_ids(teams), filters)
    rows = narrowed(teams, filters).in_bulk([hit.pk for hit in hits])
    return [rows[hit.pk] for hit in hits if hit.pk in rows]


def _ids(teams: Team | Iterable[int]) -> list[int]:
    return [teams.pk] if isinstance(teams, Team) else list(teams)


def _of(ids: Sequence[int]) -> Q:
    return Q(team=None) | Q(team_id__in=ids)


def _position(row: HistoryRecord, filters: Filters, number: int) -> Position:
    return Position(row.order if filters.by_effect else 0.0, row.pk, number)


def _in_order(ids: list[int], filters: Filters, total: int) -> tuple[list[HistoryRecord], int, bool, bool]:
    """(rows, number of the first, whether more follow, whether some stand before)."""
    back, position = filters.before is not None, filters.before or filters.after
    order = _order(filters, back)
    wanted = narrowing(filters) & (_beyond(filters, position, back) if position else Q())
    size = filters.size + 1
    if total <= FEW and filters.narrows:
        pairs = sorted(
            _pairs(ids, wanted),
            key=lambda pair: pair if filters.by_effect else pair[1],
            reverse=order[0].startswith("-"),
        )[:size]
    else:
        pairs = _merged([HistoryRecord.objects.filter(scope, wanted) for scope in _scopes(ids)], order, size)
    more = len(pairs) > filters.size
    pks = [pk for _, pk in pairs[: filters.size]]
    by_pk = HistoryRecord.objects.defer(*UNSEEN).in_bulk(pks)
    rows = [by_pk[pk] for pk in pks if pk in by_pk]
    if not back:
        first = position.number + 1 if position else 1
        return rows, first, more, position is not None and bool(rows)
    assert position is not None
    rows.reverse()
    first = max(1, position.number - len(rows)) if more else 1
    return rows, first, bool(rows), more


def _scopes(ids: Sequence[int]) -> list[Q]:
    """One condition for each part of an index that begins with the team."""
    return [Q(team=None), *(Q(team_id=pk) for pk in ids)]


def _pairs(ids: Sequence[int], wanted: Q) -> list[tuple[float, int]]:
    """(order, pk) of all that match, in no order: with a limit the planner might walk an index of the order through
    everything else, so this is for few."""
    parts = [HistoryRecord.objects.filter(scope, wanted).order_by() for scope in _scopes(ids)]
    return [pair for part in parts for pair in part.values_list("order", "pk")]


def _merged(parts: list[QuerySet[HistoryRecord]], order: list[str], size: int) -> list[tuple[float, int]]:
    """The first of all parts together: each is read in the order of its own part of the index."""
    ordered = [part.order_by(*order).values_list("order", "pk")[:size] for part in parts]
    if len(ordered) == 1:
        return list(ordered[0])
    return list(ordered[0].union(*ordered[1:], all=True).order_by(*order)[:size])


def _order(filters: Filters, back: bool) -> list[str]:
    """Columns to sort by; `back` reads from the end."""
    columns = ["order", "pk"] if filters.by_effect else ["pk"]
    descending = (filters.sort != "worst") != back
    return [f"-{column}" for column in columns] if descending else columns


def _beyond(filters: Filters, at: Position, back: bool) -> Q:
    side = "lt" if (filters.sort != "worst") != back else "gt"
    if not filters.by_effect:
        return Q(**{f"pk__{side}": at.pk})
    # The first condition bounds the index; the second decides among equals.
    return Q(**{f"order__{side}e": at.order}) & (Q(**{f"order__{side}": at.order}) | Q(**{f"pk__{side}": at.pk}))


def _ranked_page(ids: list[int], filters: Filters, available: int) -> Page:
    hits, notes = _pool(ids, filters)
    rows = _tallied(hits)
    visible_hits = [hit for hit in hits if hit.pk in rows]
    if filters.by_effect:
        visible_hits.sort(key=lambda hit: (rows[hit.pk].order, hit.pk), reverse=filters.sort == "effect")
    elif filters.sort == "newest":
        visible_hits.sort(key=lambda hit: hit.pk, reverse=True)
    start = filters.after.number if filters.after else 0
    if filters.before:
        start = max(0, filters.before.number - 1 - filters.size)
    start = min(start, max(0, len(visible_hits) - 1))
    end = start + filters.size
    counts = {name: _tally(name, rows.values()) for name in FACETS}
    others = alternatives(FacetCount.objects.filter(_of(ids)), filters)
    listed = HistoryRecord.objects.defer(*UNSEEN).in_bulk([hit.pk for hit in visible_hits[start:end]])
    return Page(
        tuple(Listed(listed[hit.pk], hit) for hit in visible_hits[start:end] if hit.pk in listed),
        len(visible_hits),
        available,
        presented(counts, filters, others),
        filters,
        start + 1,
        filters.at(after=Position(0.0, 0, end)) if end < len(visible_hits) else None,
        filters.at(before=Position(0.0, 0, start + 1)) if start else None,
        bounded=len(hits) == POOL,
        notes=notes,
    )


def _tallied(hits: Sequence[Hit]) -> dict[int, HistoryRecord]:
    """The records with the columns that they are counted and sorted by."""
    return HistoryRecord.objects.only(*_TALLIED).in_bulk([hit.pk for hit in hits])


_TALLIED = (
    "hardware",
    "chip",
    "chips",
    "model_name",
    "model_family",
    "bottleneck",
    "changes",
    "outcome",
    "provenance",
    "order",
)


def _pool(ids: list[int], filters: Filters) -> tuple[list[Hit], tuple[str, ...]]:
    wanted, query = narrowing(filters), words.query_words(filters.q)
    if filters.narrows and count(FacetCount.objects.filter(_of(ids), wanted)) <= FEW:
        # Few are compared one by one: an index of vectors would be walked far for them.
        pks = [pk for _, pk in _pairs(ids, wanted)]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_indexscan = off")
            retrieved = retrieve(HistoryRecord.objects.filter(_among(pks)), query, k=POOL)
    else:
        retrieved = retrieve(HistoryRecord.objects.filter(_of(ids), wanted), query, k=POOL)
    nearest = max((hit.vector.score for hit in retrieved.hits if hit.vector), default=0.0)
    hits = [hit for hit in retrieved.hits if hit.text or (hit.vector and hit.vector.score >= nearest - NEAR)]
    return hits, retrieved.notes


def _among(pks: list[int]) -> Any:
    """The condition `id = ANY(array)`: one parameter, however many there are."""
    array = Value(pks, output_field=ArrayField(BigIntegerField()))
    return Func(F("pk"), array, template="%(expressions)s)", arg_joiner=" = ANY(", output_field=BooleanField())


def _tally(name: str, records: Iterable[HistoryRecord]) -> dict[str, int]:
    return dict(Counter(value for record in records for value in FACETS[name].values(record)))
