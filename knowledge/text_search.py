"""Full text: which rows hold the words of a query, and how much these words say.

PostgreSQL finds the stems through the GIN index but knows no inverse document frequency; in a corpus on sharding "mesh"
says little and "rematerialization" much.  So the score is BM25's idf (Robertson and Zaragoza 2009) times `ts_rank` of
each stem, which saturates with its count and is normalised by length.  Rows that hold all that the query asks for
(`websearch_to_tsquery`) come first; below them those that hold some of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import log
from typing import Any

from django.contrib.postgres.search import SearchQueryField
from django.db import connection
from django.db.models import BooleanField, Case, Count, F, Func, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Concat, Length
from django.db.models.lookups import GreaterThan

from knowledge.embedded import WORDS, Embedded
from knowledge.synonyms import other_words

#: Rows that are ranked; where more hold a stem of the query, its rarest stems and pairs of stems decide which.
RANKED = 500
CORRELATION = 3.0
#: A synonym says less than the word that was typed.
SYNONYM_WEIGHT = 0.5
#: Above so many pages of 8 kB the frequency of a stem is taken from the planner's statistics, not counted.
COUNTED_PAGES = 1000
REMEMBERED_S = 300.0
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
    """(pk, score) of the rows that hold words of the query, best first."""
    if not words.stems:
        return []
    total, frequency = _frequencies(rows, (*words.stems, *words.also))
    idf = {
        stem: log(1 + (total - n + 0.5) / (n + 0.5)) * (1.0 if stem in words.stems else SYNONYM_WEIGHT)
        for stem, n in frequency.items()
        if n > 0
    }
    if not idf:
        return []
    wanted = words.without_excluded(rows).filter(_holds(_candidates(words, total, frequency, idf))).order_by()
    inner, parameters = wanted.values("pk", "search")[:RANKED].query.sql_with_params()
    # Joined to an empty vector in a subquery of its own, a row's stems are read from the disk's format once, not once
    # for each stem of the query.
    statement = f"""
        select pk, {" + ".join(["%s * ts_rank(stems, %s::tsquery, 1)"] * len(idf))} as score
        from (select pk, search || ''::tsvector as stems from ({inner}) as held (pk, search) offset 0) as ranked
        order by stems @@ %s::tsquery desc, score desc, pk limit %s"""
    weights = [part for stem, weight in idf.items() for part in (weight, _quoted(stem))]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*weights, *parameters, words.strict, limit])
        return [(pk, float(score)) for pk, score in cursor.fetchall()]


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


def _frequencies(rows: QuerySet[Any], stems: Sequence[str]) -> tuple[float, dict[str, float]]:
    """(number of rows, {stem: rows that hold it}): counted in a small table, estimated in a large one."""
    table = rows.model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "select reltuples, pg_relation_size(oid) / 8192 from pg_class where oid = %s::regclass",
            [connection.ops.quote_name(table)],
        )
        tuples, pages = cursor.fetchone()
    if pages > COUNTED_PAGES:
        return _estimated(table, max(float(tuples), float(pages)), stems)
    counts = rows.order_by().aggregate(
        total=Count("pk"), **{f"n{i}": Count("pk", filter=Q(_holds(_quoted(stem)))) for i, stem in enumerate(stems)}
    )
    return counts["total"], {stem: counts[f"n{i}"] for i, stem in enumerate(stems)}


def _estimated(table: str, total: float, stems: Sequence[str]) -> tuple[float, dict[str, float]]:
    common = _common_stems(table, int(time.monotonic() / REMEMBERED_S))
    if not common:  # not analysed yet: any stem may be in every other row
        return total, dict.fromkeys(stems, total / 2)
    rare = min(common.values()) / 2
    return total, {stem: max(1.0, total * common.get(stem, rare)) for stem in stems}


@lru_cache(maxsize=8)
def _common_stems(table: str, period: int) -> dict[str, float]:
    """{stem: share of the rows that hold it} as the planner's statistics list them."""
    with connection.cursor() as cursor:
        cursor.execute(
            """select most_common_elems::text::text[], most_common_elem_freqs from pg_stats
               where schemaname = any (current_schemas(false)) and tablename = %s and attname = 'search'""",
            [table],
        )
        row = cursor.fetchone()
    # The last two frequencies are the least and the greatest of the list.
    return {} if row is None or row[0] is None else dict(zip(row[0], row[1], strict=False))


def _candidates(words: Words, total: float, frequency: Mapping[str, float], idf: Mapping[str, float]) -> str:
    """The tsquery of the rows worth ranking: those with a stem of the query, or with all stems of a synonym, as long as
    few enough hold its rarest."""
    typed = {stem: weight for stem, weight in idf.items() if stem in words.stems}
    conditions = [_affordable(total, frequency, typed)] if typed else []
    room = RANKED - sum(frequency[stem] for stem in typed)
    for phrase in words.synonyms:
        if all(stem in idf for stem in phrase) and (rarest := min(frequency[stem] for stem in phrase)) <= room:
            room -= rarest
            conditions.append("(" + " & ".join(_quoted(stem) for stem in phrase) + ")")
    return " | ".join(conditions) or _any_of(words.stems)


def _affordable(total: float, frequency: Mapping[str, float], idf: Mapping[str, float]) -> str:
    """The tsquery of the rows worth ranking: any stem, or where too many hold one, what says most of them and of pairs.

    How many hold a pair is estimated as if a stem made the other CORRELATION times as likely.
    """
    if sum(frequency[stem] for stem in idf) <= RANKED:
        return _any_of(list(idf))
    expected = {(stem,): frequency[stem] for stem in idf} | {
        (one, other): min(frequency[one] * frequency[other] / total * CORRELATION, frequency[one], frequency[other])
        for one, other in combinations(idf, 2)
    }
    chosen: list[tuple[str, ...]] = []
    rows = 0.0
    for stems in sorted(expected, key=lambda stems: -sum(idf[stem] for stem in stems)):
        if any(set(each) <= set(stems) for each in chosen):
            continue
        if chosen and rows + expected[stems] > RANKED:
            break
        rows += expected[stems]
        chosen.append(stems)
    return " | ".join(" & ".join(_quoted(stem) for stem in stems) for stems in chosen)


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
