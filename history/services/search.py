"""The list of records: narrowed by facets, by words and meaning, sorted, in pages; and how many there are of each kind.

With a query in words the best `POOL` of the records that the facets leave are the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import django_filters
from django.core.paginator import Page as Listed
from django.core.paginator import Paginator
from django.db.models import F, Q, QuerySet

from accounts.facets import Facet, FacetValue, count_values, facet, in_order
from accounts.filters import Filters, NumberFilter, TextFilter, ValuesFilter
from accounts.models import Team
from history import words
from history.models import HistoryRecord
from history.record import BOTTLENECKS, CHANGES, OUTCOMES, PROVENANCES
from knowledge.retrieval import Hit, retrieve

#: A query in words has at most as many results.
POOL = 100
#: What only the vector finds counts as found up to so far below the nearest record, in cosine similarity.
NEAR = 0.2
#: Columns that no list shows.
UNSEEN = ("embedding", "search", "keywords", "remarks", "extra")
#: `effect` is the fastest first, `worst` the failed and slowest first.
SORTS = {"relevance": (), "effect": ("-order", "-pk"), "worst": ("order", "pk"), "newest": ("-pk",)}
SIZE, MAX_SIZE = 25, 100
#: Ranges of chips, both ends inclusive; the last has no end.
SIZES = ((1, 8), (9, 64), (65, 256), (257, 1024), (1025, None))
#: Facets: title, column, and the order of its values, the most frequent first where it is empty.
FACETS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "bottleneck": ("Bottleneck", "bottleneck", BOTTLENECKS[1:]),
    "hardware": ("Hardware type", "hardware", ()),
    "chip": ("Hardware", "chip", ()),
    "size": ("Chips", "chips", ()),
    "family": ("Model family", "model_family", ()),
    "model": ("Model", "model_name", ()),
    "change": ("Change", "changes", CHANGES),
    "outcome": ("Outcome", "outcome", OUTCOMES),
    "provenance": ("Origin", "provenance", PROVENANCES),
}
_LABELS = {
    "tpu": "TPU", "gpu": "GPU", "xla_flags": "XLA flags", "measured": "measured here", "memory": "HBM bandwidth",
}  # fmt: skip


class RecordFilters(Filters):
    q = TextFilter(method="unchanged", help_text="Keyword and semantic query, e.g. communication-bound llama on v5e.")
    bottleneck = ValuesFilter("bottleneck")
    hardware = ValuesFilter("hardware")
    chip = ValuesFilter("chip")
    family = ValuesFilter("model_family")
    model = ValuesFilter("model_name")
    change = ValuesFilter("changes", "overlap")
    outcome = ValuesFilter("outcome")
    provenance = ValuesFilter("provenance")
    chips_min = NumberFilter("chips", "gte", help_text="Lower limit of the number of chips.")
    chips_max = NumberFilter("chips", "lte", help_text="Upper limit of the number of chips.")
    sort = django_filters.ChoiceFilter(choices=[(name, name) for name in SORTS], method="unchanged")
    size = NumberFilter(method="unchanged", help_text=f"Page size; default {SIZE}, at most {MAX_SIZE}.")

    class Meta:
        model = HistoryRecord
        fields = ()

    @property
    def text(self) -> str:
        return str(self.asked["q"]).strip()

    @property
    def order(self) -> str:
        """The chosen sort, or what is usual: the best match of a query, else the newest."""
        chosen = str(self.asked["sort"])
        return chosen if chosen and (self.text or chosen != "relevance") else "relevance" if self.text else "newest"


@dataclass(frozen=True)
class Found:
    """A record in a list.  hit: why it answers the query, None without one."""

    record: HistoryRecord
    hit: Hit | None = None


@dataclass(frozen=True)
class Page:
    """One page of the optimization database as a team sees it."""

    rows: tuple[Found, ...]
    listed: Listed[Any]  # its number among the pages
    available: int  # records that the team sees
    facets: tuple[Facet, ...]
    filters: RecordFilters
    bounded: bool = False  # the query has more matches than `total`, which are the best of them
    notes: tuple[str, ...] = ()  # sentences for the reader, e.g. that meaning could not be compared

    @property
    def total(self) -> int:
        return self.listed.paginator.count


def visible(teams: Team | Iterable[int]) -> QuerySet[HistoryRecord]:
    """The shipped records and those of the teams."""
    ids = [teams.pk] if isinstance(teams, Team) else list(teams)
    return HistoryRecord.objects.filter(Q(team=None) | Q(team_id__in=ids)).defer(*UNSEEN)


def of_key(team: Team | int, key: str) -> HistoryRecord | None:
    """The record that a team means by an id: its own before one that ships with the product."""
    return (
        visible([team] if isinstance(team, int) else team)
        .filter(key=key)
        .order_by(F("team_id").asc(nulls_last=True))
        .first()
    )


def filtered(teams: Team | Iterable[int], asked: Mapping[str, Any]) -> RecordFilters:
    """Return the filters of an address over what the teams see."""
    return RecordFilters(asked, visible(teams))


def page(filters: RecordFilters, number: str | int = 1) -> Page:
    """Return the page that the filters ask for, with its facets; the last one where there are fewer."""
    size = min(filters.asked["size"] or SIZE, MAX_SIZE)
    available = filters.queryset.count()
    if not filters.text:
        listed = Paginator(filters.qs.order_by(*SORTS[filters.order]), size).get_page(number)
        return Page(tuple(map(Found, listed)), listed, available, tuple(_facets(filters, filters.qs)), filters)
    hits, notes = _pool(filters)
    rows = filters.queryset.in_bulk([hit.pk for hit in hits])
    found = [Found(rows[hit.pk], hit) for hit in hits if hit.pk in rows]
    if filters.order in ("effect", "worst"):
        found.sort(key=lambda one: (one.record.order, one.record.pk), reverse=filters.order == "effect")
    elif filters.order == "newest":
        found.sort(key=lambda one: -one.record.pk)
    listed = Paginator(found, size).get_page(number)
    facets = tuple(_facets(filters, filters.queryset.filter(pk__in=list(rows))))
    return Page(tuple(listed), listed, available, facets, filters, len(hits) == POOL, notes)


def records(filters: RecordFilters) -> Iterator[HistoryRecord]:
    """Yield the whole records that the filters leave, newest first; with a query in words its matches, best first."""
    whole = filters.qs.defer(None).defer("embedding", "search")
    if not filters.text:
        yield from whole.order_by("-pk").iterator(500)
        return
    hits, _ = _pool(filters)
    rows = whole.in_bulk([hit.pk for hit in hits])
    yield from (rows[hit.pk] for hit in hits if hit.pk in rows)


def label(name: str, value: str) -> str:
    """A facet's value for people."""
    return value if name in ("chip", "model", "family") else _LABELS.get(value, value.replace("_", " "))


def _pool(filters: RecordFilters) -> tuple[list[Hit], tuple[str, ...]]:
    retrieved = retrieve(filters.qs, words.query_words(filters.text), k=POOL)
    nearest = max((hit.vector.score for hit in retrieved.hits if hit.vector), default=0.0)
    hits = [hit for hit in retrieved.hits if hit.text or (hit.vector and hit.vector.score >= nearest - NEAR)]
    return hits, retrieved.notes


def _facets(filters: RecordFilters, found: QuerySet[Any]) -> Iterator[Facet]:
    """Yield the facets that have a value; of a facet with a chosen value as if none of it were chosen.

    Then, under a query in words, only what is chosen is counted: what the others hold another search would tell.
    """
    whole = count_values(found, *(column for _, column, _ in FACETS.values()))
    for name, (title, column, order) in FACETS.items():
        own = ("chips_min", "chips_max") if name == "size" else (name,)
        is_chosen = any(filters.asked[each] for each in own)
        others = count_values(filters.without(*own).qs, column)[column] if is_chosen else {}
        counts = others if is_chosen and not filters.text else whole[column]
        if name == "size":
            values = tuple(_sizes(filters, counts))
            made = Facet(name, title, values)
        else:
            numbers = dict.fromkeys(filters.asked[name] or (), 0) | counts
            if is_chosen and filters.text:
                numbers = {value: numbers[value] for value in filters.asked[name]}
            labels = {value: label(name, value) for value in in_order({**numbers, **others}, order)}
            made = facet(filters, name, title, labels, numbers)
        if made.values:
            yield made


def _sizes(filters: RecordFilters, counts: Mapping[int, int]) -> Iterator[FacetValue]:
    for low, high in SIZES:
        count = sum(n for chips, n in counts.items() if low <= chips and (high is None or chips <= high))
        chosen = (filters.asked["chips_min"], filters.asked["chips_max"]) == (low, high or "")
        if count or chosen:
            words = f"{low:,}–{high:,}" if high else f"{low:,} or more"
            changed = {"chips_min": "", "chips_max": ""} if chosen else {"chips_min": low, "chips_max": high}
            yield FacetValue(f"{low}-{high or ''}", words, count, chosen, filters.address(**changed))
