"""The knowledge base as people walk through it: filters, how many passages each leaves, and a page of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db.models import Count, QuerySet
from django.http import QueryDict

from accounts.models import Team
from accounts.text import whole_number
from knowledge.models import HARDWARE, Document, Passage
from knowledge.passage_file import BOTTLENECKS
from knowledge.retrieval import MODES, Hit, Mode, retrieve
from knowledge.services.search import names_of, seen_by, visible, whole
from perfmodel.chips import load_chips

Name = TypeVar("Name", int, str)

SIZE = 20
#: A search goes no further down its list; other words help more than page twelve.
DEEPEST = 200
#: Values of a facet that are counted; the rarest are left out.
LISTED = 60
BOTTLENECK_WORDS = {
    "compute": "Compute", "memory": "HBM bandwidth", "capacity": "Memory capacity", "communication": "Communication",
    "input": "Input", "host": "Host", "idle": "Idle",
}  # fmt: skip


@dataclass(frozen=True)
class Filters:
    """What of the knowledge base is wanted.

    q: words and meaning.  topic: pk of a document.  source: whose work; hardware: `tpu`, `gpu` or a chip; bottleneck:
    what it helps against; tag.  mode: which lists a search asks.  offset: passages before the page.
    """

    q: str = ""
    topic: int | None = None
    source: str = ""
    hardware: str = ""
    bottleneck: str = ""
    tag: str = ""
    mode: Mode = "fused"
    offset: int = 0

    @classmethod
    def read(cls, given: QueryDict) -> Filters:
        """Of an address; what makes no sense there is as if it were absent."""
        mode = given.get("mode", "")
        return cls(
            q=_text(given.get("q", ""), 1000),
            topic=whole_number(given.get("topic", ""), 9),
            source=_text(given.get("source", ""), 300),
            hardware=value if (value := given.get("hardware", "")) in (*HARDWARE, *load_chips()) else "",
            bottleneck=value if (value := given.get("bottleneck", "")) in BOTTLENECKS else "",
            tag=_text(given.get("tag", ""), 60),
            mode=next((each for each in MODES if each == mode), "fused"),
            offset=whole_number(given.get("offset", ""), 9) or 0,
        )

    def query(self) -> str:
        """The address that reads back as these, without what is as usual."""
        usual = Filters()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return urlencode({name: value for name, value in values.items() if value != getattr(usual, name)})

    def but(self, **changed: Any) -> Filters:
        """These with others, from the first page on."""
        return replace(self, **{"offset": 0, **changed})

    @property
    def chosen(self) -> list[str]:
        return [name for name in FACETS if getattr(self, name) not in ("", None)] + (["tag"] if self.tag else [])


#: Facets in the order of the page.
FACETS: Mapping[str, str] = {
    "topic": "Topic", "hardware": "Hardware", "bottleneck": "Addresses", "source": "Source",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A value of a facet.  count: passages that it leaves; own: it is a document of the team."""

    value: str
    label: str
    count: int
    chosen: bool
    filters: Filters
    own: bool = False


@dataclass(frozen=True)
class Facet:
    name: str
    title: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Row:
    """A passage of the page, and why it was found; None where nothing was asked for in words."""

    passage: Passage
    hit: Hit | None = None

    @property
    def fused(self) -> float | None:
        """The score of both lists together; None where only one list had anything."""
        return self.hit.score if self.hit is not None and self.hit.fused else None


@dataclass(frozen=True)
class Page:
    """total: passages that the filters leave; available: all that the team sees.  embedder, notes: as of a search."""

    filters: Filters
    rows: tuple[Row, ...]
    total: int
    available: int
    embedder: str = ""
    notes: tuple[str, ...] = ()
    more: bool = False

    @property
    def by_meaning(self) -> bool:
        """Whether any passage of the page was found by its vector."""
        return any(row.hit is not None and row.hit.vector is not None for row in self.rows)

    @property
    def first(self) -> int:
        return self.filters.offset + 1

    @property
    def last(self) -> int:
        return self.filters.offset + len(self.rows)

    @property
    def next(self) -> Filters | None:
        return replace(self.filters, offset=self.filters.offset + SIZE) if self.more else None

    @property
    def previous(self) -> Filters | None:
        return replace(self.filters, offset=max(0, self.filters.offset - SIZE)) if self.filters.offset else None


def page(team: Team | None, filters: Filters) -> Page:
    """One page: the best for the words, or everything in the order of its documents."""
    available = visible(team).count()
    left = rows(team, filters)
    total = left.count() if filters.chosen else available
    if not filters.q:
        # Shipped documents were stored first.  Only the page's own rows are read whole.
        ordered = left.order_by("document_id", "position", "pk").values_list("pk", flat=True)
        pks = list(ordered[filters.offset : filters.offset + SIZE])
        passages = whole().in_bulk(pks)
        page_rows = tuple(Row(passages[pk]) for pk in pks if pk in passages)
        return Page(filters, page_rows, total, available, more=filters.offset + len(pks) < total)
    offset = min(filters.offset, DEEPEST - SIZE)
    filters = replace(filters, offset=offset)
    result = retrieve(left, filters.q, k=SIZE + 1, mode=filters.mode, offset=offset)
    hits = result.hits[:SIZE]
    passages = whole().in_bulk([hit.pk for hit in hits])
    return Page(
        filters, tuple(Row(passages[hit.pk], hit) for hit in hits if hit.pk in passages), total, available,
        result.embedder, result.notes, more=len(result.hits) > SIZE and offset + SIZE < DEEPEST,
    )  # fmt: skip


def rows(team: Team | None, filters: Filters) -> QuerySet[Passage]:
    """The passages that the filters leave."""
    passages: QuerySet[Passage] = visible(team, hardware=filters.hardware, bottleneck=filters.bottleneck)
    if filters.topic is not None:
        passages = passages.filter(document=filters.topic)
    if filters.source:
        passages = passages.filter(source=filters.source)
    if filters.tag:
        passages = passages.filter(tags__contains=[filters.tag])
    return passages


@dataclass(frozen=True)
class _Group:
    """Passages that are alike in all that a facet tells apart, and how many they are."""

    topic: int
    shipped: bool
    source: str
    hardware: frozenset[str]
    bottlenecks: frozenset[str]
    count: int

    def left_by(self, filters: Filters, without: str) -> bool:
        """Whether the filters leave it, those of one facet taken away: what `rows` asks the database."""
        return (
            (without == "topic" or filters.topic is None or self.topic == filters.topic)
            and (without == "source" or not filters.source or self.source == filters.source)
            and (without == "hardware" or not filters.hardware or self.runs_on(filters.hardware))
            and (without == "bottleneck" or not filters.bottleneck or filters.bottleneck in self.bottlenecks)
        )

    def runs_on(self, hardware: str) -> bool:
        return not self.hardware or not self.hardware.isdisjoint(_filed_under(hardware))


@cache
def _filed_under(hardware: str) -> frozenset[str]:
    return frozenset(("any", *names_of(hardware)))


def _groups(team: Team | None, filters: Filters) -> list[_Group]:
    """All that the team sees of a tag, counted in one pass over the passages."""
    tagged_passages = (
        rows(team, Filters(tag=filters.tag))
        .order_by()
        .values_list("document", "team", "source", "hardware", "bottlenecks")
    )
    return [
        _Group(topic, owner is None, source, frozenset(hardware), frozenset(bottlenecks), count)
        for topic, owner, source, hardware, bottlenecks, count in tagged_passages.annotate(n=Count("pk"))
    ]


def facets(team: Team | None, filters: Filters) -> list[Facet]:
    """Each facet with what the other filters leave of its values; a chosen value is there even if nothing is left."""
    groups = _groups(team, filters)
    left = {name: [group for group in groups if group.left_by(filters, name)] for name in FACETS}
    topics = tuple(_topics(team, filters, left["topic"]))
    made = {
        "topic": tuple(value for value in topics if not value.own),
        "document": tuple(value for value in topics if value.own),
        "hardware": tuple(_listed(filters, "hardware", _hardware(filters, left["hardware"]))),
        "bottleneck": tuple(_listed(filters, "bottleneck", _bottlenecks(left["bottleneck"]))),
        "source": tuple(_sources(filters, left["source"])),
    }
    titles = {**FACETS, "document": "Documents of the team"}
    return [Facet(name, titles[name], values) for name, values in made.items() if values]


def _counted(value_counts: Iterable[tuple[Name, int]], most: int) -> dict[Name, int]:
    """How many of each, the most frequent first."""
    counts: Counter[Name] = Counter()
    for value, count in value_counts:
        counts[value] += count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])


def _topics(team: Team | None, filters: Filters, left: Sequence[_Group]) -> Iterator[Value]:
    counts = _counted(((group.topic, group.count) for group in left), 4 * LISTED)
    if filters.topic is not None:
        counts.setdefault(filters.topic, 0)
    wanted = Document.objects.filter(seen_by(team), pk__in=counts)
    for document in sorted(wanted, key=lambda each: each.title.lower()):
        yield _value(filters, "topic", document.pk, document.title, counts[document.pk], document.team_id is not None)


def _sources(filters: Filters, left: Sequence[_Group]) -> Iterator[Value]:
    counts = _counted(((group.source, group.count) for group in left if group.shipped), LISTED)
    if filters.source:
        counts.setdefault(filters.source, 0)
    for source, count in counts.items():
        yield _value(filters, "source", source, source, count)


def _hardware(filters: Filters, left: Sequence[_Group]) -> dict[str, tuple[str, int]]:
    labels = dict(HARDWARE)
    if filters.hardware:
        labels.setdefault(filters.hardware, filters.hardware)
    return {kind: (label, sum(group.count for group in left if group.runs_on(kind))) for kind, label in labels.items()}


def _bottlenecks(left: Sequence[_Group]) -> dict[str, tuple[str, int]]:
    return {
        name: (BOTTLENECK_WORDS[name], sum(group.count for group in left if name in group.bottlenecks))
        for name in BOTTLENECKS
    }


def _listed(filters: Filters, name: str, counts: Mapping[str, tuple[str, int]]) -> Iterator[Value]:
    for value, (label, count) in counts.items():
        if count or getattr(filters, name) == value:
            yield _value(filters, name, value, label, count)


def _value(filters: Filters, name: str, value: Any, label: str, count: int, own: bool = False) -> Value:
    chosen = getattr(filters, name) == value
    none = None if name == "topic" else ""
    return Value(str(value), label, count, chosen, filters.but(**{name: none if chosen else value}), own)


def _text(value: str, longest: int) -> str:
    return value.strip()[:longest]
