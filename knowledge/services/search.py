"""Search in what a team knows: the shipped passages and its own documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, QuerySet

from accounts.models import Team
from knowledge import retrieval
from knowledge.models import Passage
from knowledge.retrieval import Hit, Mode, Retrieval, retrieve
from knowledge.services.embedding import stale
from perfmodel.chips import load_chips

#: Kinds of hardware, beside the chips of perfmodel/chips.toml.
KINDS = ("tpu", "gpu")


@dataclass(frozen=True)
class Found:
    """A passage, and why it was found: its rank and score in each list, fused score, matched words."""

    passage: Passage
    hit: Hit | None = None  # None where nothing was asked for in words

    @property
    def fused(self) -> float | None:
        """The score of both lists together; None where only one list had anything."""
        return self.hit.score if self.hit is not None and self.hit.fused else None


@dataclass(frozen=True)
class Answer:
    """What a search found, best first.

    mode: as asked.  embedder: whose vectors were compared, empty where none were.  notes: what the reader must know,
    e.g. that words alone were used.
    """

    found: tuple[Found, ...]
    mode: Mode
    embedder: str = ""
    notes: tuple[str, ...] = ()


def search(
    team: Team | None, query: str, k: int = 5, *, hardware: str = "", bottleneck: str = "", mode: Mode = "fused"
) -> Answer:
    """The k passages that answer a query best, of the shipped ones and, with a team, of its own.

    hardware: `tpu`, `gpu` or a chip; passages for all hardware count, too.  bottleneck: only passages that help against
    it.  Raises ValueError with a sentence for hardware that is not known.
    """
    rows = visible(team)
    if hardware:
        rows = for_hardware(rows, hardware)
    if bottleneck:
        rows = rows.filter(bottlenecks__contains=[bottleneck])
    return of_rows(rows, query, k, mode=mode)


def of_rows(rows: QuerySet[Any], query: str, k: int, *, mode: Mode = "fused", offset: int = 0) -> Answer:
    """The k of some passages that answer a query best, after the first `offset`."""
    return _answer(retrieve(rows, query, k=k, mode=mode, offset=offset))


def visible(team: Team | None) -> QuerySet[Any]:
    """The passages a team may see, those that were retired left out."""
    return Passage.objects.filter(seen_by(team), retired_at=None)


def for_hardware(rows: QuerySet[Any], hardware: str) -> QuerySet[Any]:
    """Return the passages that hold for `tpu`, `gpu` or a chip, those for all hardware too."""
    return rows.filter(Q(hardware=[]) | Q(hardware__overlap=["any", *names_of(hardware)]))


def passage(teams: Iterable[int], key: str) -> Passage | None:
    """The passage that a citation names, also a retired one; None where none is shipped or of one of these teams."""
    seen = Q(team=None) | Q(team__in=list(teams))
    return whole().filter(seen, key=key).order_by(F("team_id").asc(nulls_first=True)).first()


def similar(team: Team | None, to: Passage, k: int = 5) -> Answer:
    """The passages nearest in meaning to one, of those that the team sees; none, and a note, where it has no vector."""
    return _answer(retrieval.similar(visible(team), to, k=k))


def _answer(result: Retrieval) -> Answer:
    return Answer(found_of(result.hits), result.mode, result.embedder, result.notes)


def found_of(hits: Iterable[Hit]) -> tuple[Found, ...]:
    """Return the hits with their passages."""
    kept = list(hits)
    passages = whole().in_bulk([hit.pk for hit in kept])
    return tuple(Found(passages[hit.pk], hit) for hit in kept if hit.pk in passages)


def whole() -> QuerySet[Passage]:
    """Passages with their documents, without the columns that only a search reads."""
    return Passage.objects.select_related("document").defer("embedding", "search")


def seen_by(team: Team | None) -> Q:
    """The condition on a passage or a document that it is shipped or, with a team, of the team."""
    return Q(team=None) | Q(team=team) if team is not None else Q(team=None)


def waiting(team: Team | None) -> int:
    """Passages that a search by meaning does not see yet, because they have no vector of the current model."""
    return stale(Passage).filter(pk__in=visible(team).values("pk")).count()


def names_of(hardware: str) -> list[str]:
    """The names under which passages for some hardware are filed: a chip is also one of its kind."""
    if hardware in KINDS:
        return [hardware]
    chips = load_chips()
    if hardware not in chips:
        raise ValueError(f"hardware is {', '.join(KINDS)} or a chip ({', '.join(chips)}), not {hardware!r}.")
    return [hardware, chips[hardware].kind]
