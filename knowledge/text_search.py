"""Full text: which rows hold the words of a query, and how much these words say.

PostgreSQL finds the stems through the GIN index but knows no inverse document frequency; in a corpus on sharding "mesh"
says little and "rematerialization" much.  So the score is BM25's idf (Robertson and Zaragoza 2009) times `ts_rank` of
each stem, which saturates with its count and is normalised by length.  Rows that hold all that the query asks for
(`websearch_to_tsquery`) come first; below them those that hold some of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import log
from operator import add
from typing import Any

from django.contrib.postgres.search import SearchQueryField, SearchRank
from django.db import connection
from django.db.models import BooleanField, Case, Count, F, Func, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Concat, Length
from django.db.models.lookups import GreaterThan

from knowledge.embedded import WORDS, Embedded
from knowledge.synonyms import other_words

#: About as many rows are ranked at most.
RANKED = 1000
#: A synonym says less than the word that was typed.
SYNONYM_WEIGHT = 0.5
START, STOP = "\x02", "\x03"
#: Stands for "<" in what `ts_headline` reads, which takes `a<b and c>d` for markup and drops it.
LESS = "\x01"
#: An excerpt holds the whole of a text of so many characters, and pieces around the matches of a longer one.
WHOLE = 320
PIECES = ', MaxWords=45, MinWords=20, MaxFragments=2, FragmentDelimiter=" … "'
_STEM = re.compile(r"'((?:[^']|'')*)'")
_NEGATED = re.compile(r"!(?:'(?:[^']|'')*'|\([^)]*\))")


@dataclass(frozen=True)
class Fragment:
    """A piece of an excerpt; matched: it is a word of the query."""

    text: str
    matched: bool


@dataclass(frozen=True)
class Words:
    """A query as PostgreSQL reads it.

    strict: the whole of it as a tsquery; stems: those it asks for, in order; excluded: those it does not want;
    synonyms: stems of each phrase that its terms are also called (knowledge/synonyms.toml).
    """

    strict: str
    stems: tuple[str, ...]
    excluded: tuple[str, ...]
    synonyms: tuple[tuple[str, ...], ...] = ()

    @property
    def also(self) -> tuple[str, ...]:
        """Stems of synonyms that the query does not ask for itself, each once."""
        stems = dict.fromkeys(stem for phrase in self.synonyms for stem in phrase)
        return tuple(stem for stem in stems if stem not in self.stems)

    def without_excluded(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.exclude(_holds(_any_of(self.excluded))) if self.excluded else rows


def parse(query: str) -> Words:
    with connection.cursor() as cursor:
        cursor.execute(
            """select websearch_to_tsquery(%s::regconfig, %s)::text,
                      array(select plainto_tsquery(%s::regconfig, phrase)::text from unnest(%s::text[]) as phrase)""",
            [WORDS, query, WORDS, list(other_words(query))],
        )
        strict, phrases = cursor.fetchone()
    stems = list(dict.fromkeys(_stems(_NEGATED.sub("", strict))))
    excluded = [stem for part in _NEGATED.findall(strict) for stem in _stems(part)]
    other = tuple(
        synonym for phrase in phrases if (synonym := tuple(_stems(phrase))) and not set(synonym) & set(excluded)
    )
    return Words(strict, tuple(stems), tuple(stem for stem in excluded if stem not in stems), other)


def matching(rows: QuerySet[Any], words: Words, limit: int) -> list[tuple[Any, float]]:
    """Return (pk, score) of up to `limit` rows that hold words of the query, best first."""
    stems = dict.fromkeys(words.stems, 1.0) | dict.fromkeys(words.also, SYNONYM_WEIGHT)
    counts = rows.order_by().aggregate(
        total=Count("pk"), **{f"n{i}": Count("pk", filter=Q(_holds(_quoted(stem)))) for i, stem in enumerate(stems)}
    )
    total = counts["total"]
    frequency = {stem: counts[f"n{i}"] for i, stem in enumerate(stems)}
    idf = {
        stem: weight * log(1 + (total - frequency[stem] + 0.5) / (frequency[stem] + 0.5))
        for stem, weight in stems.items()
        if frequency[stem]
    }
    # A synonym is found by all of its stems; of the query's own the rarest count, where too many rows hold one.
    room = RANKED
    wanted: list[tuple[str, ...]] = []
    for stem in sorted((stem for stem in words.stems if stem in idf), key=lambda stem: -idf[stem]):
        room -= frequency[stem]
        if room >= 0 or not wanted:
            wanted.append((stem,))
    wanted += [phrase for phrase in words.synonyms if all(stem in idf for stem in phrase)]
    if not wanted or not words.stems:
        return []
    ranks = (SearchRank(F("search"), _tsquery(_quoted(stem)), normalization=1) * weight for stem, weight in idf.items())
    ranked = (
        words.without_excluded(rows)
        .filter(_holds(" | ".join(f"({' & '.join(map(_quoted, stems))})" for stems in wanted)))
        .annotate(score=reduce(add, ranks), whole=_holds(words.strict))
        .order_by("-whole", "-score", "pk")
    )
    return [(pk, float(score)) for pk, score in ranked.values_list("pk", "score")[:limit]]


def excerpts(
    model: type[Embedded], words: Words, pks: Sequence[Any]
) -> dict[Any, tuple[tuple[Fragment, ...], tuple[str, ...]]]:
    """For each row its excerpt, in fragments, and the words in it that matched."""
    if not pks or not model.excerpt_fields:
        return {}
    fields: list[Any] = [F(name) for name in model.excerpt_fields]
    joined = fields[0]
    for each in fields[1:]:
        joined = Concat(joined, Value("\n"), each, output_field=TextField())
    clean = Func(joined, Value("<" + START + STOP), Value(LESS), function="translate", output_field=TextField())
    marks = f'StartSel="{START}", StopSel="{STOP}"'
    options = Case(
        When(GreaterThan(Length(clean), WHOLE), then=Value(marks + PIECES)),
        default=Value(marks + ", HighlightAll=true"),
    )
    query = _any_of((*words.stems, *words.also)) if words.stems else "'\x01'"
    fragments = (
        model._default_manager.filter(pk__in=pks)
        .order_by()
        .values_list(
            "pk",
            Func(
                Cast(Value(WORDS), _RegConfig()), clean, _tsquery(query), options,
                function="ts_headline", output_field=TextField(),
            ),
        )
    )  # fmt: skip
    return {pk: _fragments(text) for pk, text in fragments}


class _RegConfig(TextField):
    def db_type(self, connection: Any) -> str:
        return "regconfig"


def _fragments(marked: str) -> tuple[tuple[Fragment, ...], tuple[str, ...]]:
    pieces = re.split(f"({START}[^{STOP}]*{STOP})", marked.replace(LESS, "<"))
    fragments = tuple(
        Fragment(piece.strip(START + STOP) if piece.startswith(START) else piece, piece.startswith(START))
        for piece in pieces
        if piece
    )
    matched = dict.fromkeys(fragment.text.lower() for fragment in fragments if fragment.matched)
    return fragments, tuple(matched)


def _stems(tsquery: str) -> list[str]:
    return [stem.replace("''", "'") for stem in _STEM.findall(tsquery)]


def _quoted(stem: str) -> str:
    return "'" + stem.replace("\\", "\\\\").replace("'", "''") + "'"


def _any_of(stems: Sequence[str]) -> str:
    return " | ".join(_quoted(stem) for stem in stems)


def _tsquery(text: str) -> Any:
    return Cast(Value(text), SearchQueryField())


def _holds(tsquery: str) -> Any:
    return Func(F("search"), _tsquery(tsquery), template="%(expressions)s", arg_joiner=" @@ ",
                output_field=BooleanField())  # fmt: skip
