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
from math import log
from typing import Any

from django.contrib.postgres.search import SearchQueryField
from django.db import connection
from django.db.models import BooleanField, Count, F, FloatField, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from knowledge.embedded import WORDS, Embedded

#: Rows that are ranked; where more hold a stem of the query, its rarest stems decide which.
RANKED = 3000
#: Above so many pages of 8 kB the frequency of a stem is taken from the planner's statistics, not counted.
COUNTED_PAGES = 1000
START, STOP = "\x02", "\x03"
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

    strict: the whole of it as a tsquery; stems: those it asks for, in order; excluded: those it does not want.
    """

    strict: str
    stems: tuple[str, ...]
    excluded: tuple[str, ...]

    def without_excluded(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.exclude(_holds(_any_of(self.excluded))) if self.excluded else rows


def parse(query: str) -> Words:
    with connection.cursor() as cursor:
        cursor.execute("select websearch_to_tsquery(%s::regconfig, %s)::text", [WORDS, query])
        strict = str(cursor.fetchone()[0])
    stems = list(dict.fromkeys(_stems(_NEGATED.sub("", strict))))
    excluded = [stem for part in _NEGATED.findall(strict) for stem in _stems(part)]
    return Words(strict, tuple(stems), tuple(stem for stem in excluded if stem not in stems))


def matching(rows: QuerySet[Any], words: Words, limit: int) -> list[tuple[Any, float]]:
    """(pk, score) of the rows that hold words of the query, best first."""
    if not words.stems:
        return []
    total, frequency = _frequencies(rows, words.stems)
    idf = {stem: log(1 + (total - n + 0.5) / (n + 0.5)) for stem, n in frequency.items() if n > 0}
    if not idf:
        return []
    chosen = _affordable(frequency, list(idf))
    wanted = words.without_excluded(rows).filter(_holds(_any_of(chosen))).order_by()
    if sum(frequency[stem] for stem in chosen) > RANKED:
        wanted = rows.model._default_manager.filter(pk__in=wanted.values("pk")[:RANKED])
    score: Any = Value(0.0, output_field=FloatField())
    for stem, weight in idf.items():
        score = score + Value(weight) * Func(F("search"), _tsquery(_quoted(stem)), Value(1), function="ts_rank",
                                             output_field=FloatField())  # fmt: skip
    ranked = (
        wanted.annotate(text_score=score, holds_all=_holds(words.strict))
        .order_by("-holds_all", "-text_score", "pk")
        .values_list("pk", "text_score")
    )
    return list(ranked[:limit])


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
    options = f'StartSel="{START}", StopSel="{STOP}", MaxWords=45, MinWords=20, MaxFragments=2, FragmentDelimiter=" … "'
    query = _any_of(words.stems) if words.stems else "'\x01'"
    found = (
        model._default_manager.filter(pk__in=pks)
        .order_by()
        .values_list(
            "pk",
            Func(
                Cast(Value(WORDS), _RegConfig()), joined, _tsquery(query), Value(options),
                function="ts_headline", output_field=TextField(),
            ),
        )
    )  # fmt: skip
    return {pk: _fragments(text) for pk, text in found}


class _RegConfig(TextField):
    def db_type(self, connection: Any) -> str:
        return "regconfig"


def _fragments(marked: str) -> tuple[tuple[Fragment, ...], tuple[str, ...]]:
    pieces = re.split(f"({START}[^{STOP}]*{STOP})", marked)
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
            return _estimated(cursor, table, max(float(tuples), float(pages)), stems)
    counts = rows.order_by().aggregate(
        total=Count("pk"), **{f"n{i}": Count("pk", filter=Q(_holds(_quoted(stem)))) for i, stem in enumerate(stems)}
    )
    return counts["total"], {stem: counts[f"n{i}"] for i, stem in enumerate(stems)}


def _estimated(cursor: Any, table: str, total: float, stems: Sequence[str]) -> tuple[float, dict[str, float]]:
    """From the planner's list of common stems; the last two frequencies are the list's least and greatest."""
    cursor.execute(
        """select most_common_elems::text::text[], most_common_elem_freqs from pg_stats
           where schemaname = any (current_schemas(false)) and tablename = %s and attname = 'search'""",
        [table],
    )
    row = cursor.fetchone()
    if row is None or row[0] is None:  # not analysed yet: any stem may be in every other row
        return total, dict.fromkeys(stems, total / 2)
    shares = dict(zip(row[0], row[1], strict=False))
    return total, {stem: max(1.0, total * shares.get(stem, row[1][-2] / 2)) for stem in stems}


def _affordable(frequency: dict[str, float], stems: list[str]) -> list[str]:
    """The rarest stems, as long as not too many rows hold one of them; at least one."""
    chosen: list[str] = []
    rows = 0.0
    for stem in sorted(stems, key=lambda stem: frequency[stem]):
        rows += frequency[stem]
        if chosen and rows > RANKED:
            break
        chosen.append(stem)
    return chosen


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
