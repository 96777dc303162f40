"""The knowledge base as people walk through it: filters, how many passages each leaves, and a page of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import django_filters
from django.core.paginator import Page as Listed
from django.core.paginator import Paginator
from django.db.models import QuerySet

from accounts.facets import Facet, count_values, facet, in_order
from accounts.filters import Filters, NumberFilter, TextFilter
from accounts.models import Team
from formatting.numbers import whole_number
from knowledge.models import HARDWARE, Document, Passage
from knowledge.passage_file import BOTTLENECKS
from knowledge.retrieval import MODES, retrieve
from knowledge.services.search import Found, for_hardware, found_of, visible, whole
from perfmodel.chips import load_chips

SIZE = 12
#: A search goes no further down its list; other words help more than page eleven.
LAST_PAGE = 10
BOTTLENECK_WORDS = {
    "compute": "Compute", "memory": "HBM bandwidth", "capacity": "Memory capacity", "communication": "Communication",
    "input": "Input", "host": "Host", "idle": "Idle",
}  # fmt: skip


class PassageFilters(Filters):
    q = TextFilter(method="unchanged", help_text="Query or question.")
    document = NumberFilter("document", help_text="Only passages of this document.")
    hardware = django_filters.ChoiceFilter(
        choices=[(name, name) for name in (*HARDWARE, *load_chips())],
        method="of",
        help_text="Hardware-independent passages are included.",
    )
    bottleneck = django_filters.ChoiceFilter(choices=[(name, name) for name in BOTTLENECKS], method="addressing")
    source = TextFilter()
    tag = TextFilter(method="tagged")
    mode = django_filters.ChoiceFilter(choices=[(name, name) for name in MODES], method="unchanged")

    class Meta:
        model = Passage
        fields = ()

    def of(self, rows: QuerySet[Any], name: str, hardware: str) -> QuerySet[Any]:
        return for_hardware(rows, hardware)

    def addressing(self, rows: QuerySet[Any], name: str, bottleneck: str) -> QuerySet[Any]:
        return rows.filter(bottlenecks__contains=[bottleneck])

    def tagged(self, rows: QuerySet[Any], name: str, tag: str) -> QuerySet[Any]:
        return rows.filter(tags__contains=[tag])

    @property
    def text(self) -> str:
        return str(self.asked["q"]).strip()

    @property
    def mode_or_both(self) -> Any:
        return self.asked["mode"] or "fused"


@dataclass(frozen=True)
class Page:
    filters: PassageFilters
    rows: tuple[Found, ...]
    listed: Listed[Any]  # its number among the pages
    total: int  # passages that the filters leave
    available: int  # passages that the team sees
    embedder: str = ""  # whose vectors a search compared
    notes: tuple[str, ...] = ()  # sentences for the reader

    @property
    def by_meaning(self) -> bool:
        """Whether any passage of the page was found by its vector."""
        return any(row.hit is not None and row.hit.vector is not None for row in self.rows)


def filtered(team: Team | None, asked: Any) -> PassageFilters:
    """Return the filters of an address over what the team sees."""
    return PassageFilters(asked, visible(team))


def page(filters: PassageFilters, number: str = "1") -> Page:
    """Return one page: the best for the words, or everything in the order of its documents."""
    left = filters.qs
    available, total = filters.queryset.count(), left.count()
    if not filters.text:
        # Shipped documents were stored first.  Only the page's own rows are read whole.
        keys = left.order_by("document_id", "position", "pk").values_list("pk", flat=True)
        listed = Paginator(keys, SIZE).get_page(number)
        passages = whole().in_bulk(list(listed))
        rows = tuple(Found(passages[pk]) for pk in listed if pk in passages)
        return Page(filters, rows, listed, total, available)
    number_now = min(whole_number(number, 9) or 1, LAST_PAGE)
    # One more than are shown: then another page follows.
    wanted = number_now * SIZE + (number_now < LAST_PAGE)
    result = retrieve(left, filters.text, k=wanted, mode=filters.mode_or_both)
    listed = Paginator(result.hits, SIZE).get_page(number_now)
    return Page(filters, found_of(listed), listed, total, available, result.embedder, result.notes)


def facets(filters: PassageFilters) -> list[Facet]:
    """Return each facet with what the other filters leave of its values; a chosen value is there in any case."""
    made = [facet(filters, *counted) for counted in _counted(filters)]
    # A team's own documents are listed apart.
    made[0] = replace(made[0], name="topic")
    return [one for one in made if one.values]


def _counted(filters: PassageFilters) -> Iterator[tuple[str, str, dict[Any, str], dict[Any, int | None]]]:
    """Yield (filter, title, labels of its values, counts) of each facet."""

    def counts(name: str, column: str, **only: Any) -> dict[Any, int]:
        rows = filters.without(name).qs if filters.asked[name] else filters.qs
        chosen = {filters.asked[name]: 0} if filters.asked[name] else {}
        return chosen | count_values(rows.filter(**only), column)[column]

    by_topic = counts("document", "document")
    documents = Document.objects.filter(pk__in=by_topic).filter(pk__in=filters.queryset.values("document"))
    titles = {document.pk: document.title for document in sorted(documents, key=lambda one: one.title.lower())}
    own = {document.pk for document in documents if document.team_id is not None}
    yield "document", "Topic", {pk: title for pk, title in titles.items() if pk not in own}, {**by_topic}
    yield "document", "Documents of the team", {pk: title for pk, title in titles.items() if pk in own}, {**by_topic}
    rows = filters.without("hardware").qs
    chosen = filters.asked["hardware"]
    labels: dict[Any, str] = HARDWARE | ({chosen: HARDWARE.get(chosen, chosen)} if chosen else {})
    by_kind: dict[Any, int | None] = {kind: filters.of(rows, "", kind).count() for kind in labels}
    labels = {kind: label for kind, label in labels.items() if by_kind[kind] or kind == chosen}
    yield "hardware", "Hardware", labels, by_kind
    by_bottleneck = counts("bottleneck", "bottlenecks")
    labels = {name: BOTTLENECK_WORDS[name] for name in BOTTLENECKS if name in by_bottleneck}
    yield "bottleneck", "Addresses", labels, {**by_bottleneck}
    by_source = counts("source", "source", team=None)
    yield "source", "Source", {source: source for source in in_order(by_source)}, {**by_source}
