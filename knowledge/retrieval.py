"""Hybrid retrieval over any model that is `Embedded`: by meaning, by words, and both fused by their scores.

`retrieve(rows, query)` takes a filtered queryset, so that every filter and every right is the caller's `filter()`, and
says of each hit why it is there.  Measured in docs/knowledge.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet
from numpy.typing import NDArray

from knowledge.embedded import Embedded
from knowledge.embedding.minilm import NAME, EmbeddingError, embed
from knowledge.synonyms import other_words
from knowledge.text_search import Fragment, Words, excerpts, matching, parse
from knowledge.vector_search import nearest, nearest_with_questions

Mode = Literal["fused", "vector", "text"]
MODES: tuple[Mode, ...] = get_args(Mode)
#: Each list gives so many candidates to the fusion.
CANDIDATES = 50
LONGEST_QUERY = 2000  # characters
_FLAG = re.compile(r"(?<!\S)--(?=\w)")
_COLLECTIVES = tuple(
    (re.compile(rf"\b{pattern}", re.IGNORECASE), name)
    for pattern, name in (
        ("all[-_ ]?(?:2|to)[-_ ]?all", "all-to-all"), ("all[-_ ]?reduce", "all-reduce"),
        ("all[-_ ]?gather", "all-gather"), ("reduce[-_ ]?scatter", "reduce-scatter"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Rank of a row in one list.  score: cosine similarity (vector; with questions, the mean of the text's and the
    nearest question's), or weighted sum of matched stems (text)."""

    rank: int
    score: float


@dataclass(frozen=True)
class Hit:
    """A row that was found, and why.

    score: of the fusion, 0 to 1 (`_fused`); with one list, that list's.  fused: whether both lists had anything.
    excerpt: its text around the words that matched, in pieces; matched: these words.
    """

    pk: Any
    score: float
    vector: Place | None = None
    text: Place | None = None
    fused: bool = False
    excerpt: tuple[Fragment, ...] = ()
    matched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retrieval:
    """What was found, best first.

    mode: which lists were asked for.  embedder: whose vectors were compared, empty where none were.  notes: sentences
    for the reader on what could not be done, e.g. that the weights of the model are not there.
    """

    hits: tuple[Hit, ...]
    mode: Mode
    embedder: str = ""
    notes: tuple[str, ...] = ()


def retrieve(rows: QuerySet[Any], query: str, *, k: int = 5, mode: Mode = "fused", offset: int = 0) -> Retrieval:
    """The k best of the rows (after the first `offset`) for a query in plain words.

    rows: a queryset of an Embedded model; its order is ignored.  Words in quotes stand together, a word after a minus
    is excluded.  Where the query has no vector, words alone are used, and `notes` says so; where words are excluded,
    that holds for both lists.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    model: type[Embedded] = rows.model
    query = spelled(query)
    if not any(character.isalnum() for character in query):
        return Retrieval((), mode)
    try:
        rows.query.sql_with_params()
    except EmptyResultSet:  # a filter that nothing can pass
        return Retrieval((), mode)
    words = parse(query)
    candidates = max(CANDIDATES, k + offset)
    notes: list[str] = []
    by_vector: list[tuple[Any, float]] = []
    embedder = ""
    if mode != "text":
        try:
            vector = _vector_of(_with_synonyms(query))
            embedder = NAME
            by_vector = nearest_with_questions(words.without_excluded(rows), vector, candidates)
        except EmbeddingError as error:
            notes.append(f"{error} Keyword search only.")
    by_text = [] if mode == "vector" and embedder else matching(rows, words, candidates)
    hits = _fused(by_vector, by_text)[offset : offset + k]
    return Retrieval(tuple(_explained(model, words, hits)), mode, embedder, tuple(notes))


@lru_cache(maxsize=256)
def _vector_of(query: str) -> NDArray[np.float32]:
    """Kept, since the next page and the counts beside a list ask with the same words."""
    vector = embed([query])[0]
    vector.flags.writeable = False
    return vector


def _with_synonyms(query: str) -> str:
    """A query with its abbreviations spelled out, which tell an embedder little: `tp 16 (tensor parallelism)`."""
    other = other_words(query)
    return f"{query} ({', '.join(other)})" if other else query


def spelled(query: str) -> str:
    """A query as the passages write it: `allreduce` is all-reduce, and `--flag` a word that is not excluded."""
    query = query.replace("\0", " ").strip()[:LONGEST_QUERY]
    query = _FLAG.sub(" ", query)
    for pattern, name in _COLLECTIVES:
        query = pattern.sub(name, query)
    return query


def similar(rows: QuerySet[Any], to: Embedded, *, k: int = 5) -> Retrieval:
    """The k rows nearest in meaning to one that has a vector, without itself; none, and a note, where it has none."""
    if to.embedding is None:
        return Retrieval((), "vector", notes=("It has no embedding yet: the workers are computing it.",))
    others = rows.exclude(pk=to.pk) if rows.model is type(to) else rows
    neighbours = nearest(others, np.asarray(to.embedding, np.float32), k)
    hits = tuple(Hit(pk, score, vector=Place(n, score)) for n, (pk, score) in enumerate(neighbours, 1))
    return Retrieval(hits, "vector", to.embedding_model)


def _fused(by_vector: Sequence[tuple[Any, float]], by_text: Sequence[tuple[Any, float]]) -> list[Hit]:
    """Both lists in one: half of the score in either, as a share of what the list's best has (Bruch, Gai and Ingber, An
    Analysis of Fusion Functions for Hybrid Retrieval, TOIS 2023).  A row that a list does not hold has 0 there.

    Words count from 0, the score of a row without any; similarities from that of the CANDIDATES-th, since no row has 0:
    what is further down counts no more, however long a list is asked for.
    """
    vector = {pk: Place(rank, score) for rank, (pk, score) in enumerate(by_vector, 1)}
    text = {pk: Place(rank, score) for rank, (pk, score) in enumerate(by_text, 1)}
    if not (vector and text):
        return [Hit(pk, place.score, vector.get(pk), text.get(pk)) for pk, place in {**vector, **text}.items()]
    least = by_vector[:CANDIDATES][-1][1] if len(by_vector) > 1 else 0.0
    shares = (_shares(vector, least), _shares(text, 0.0))
    hits = [
        Hit(pk, sum(share.get(pk, 0.0) for share in shares) / 2, vector.get(pk), text.get(pk), fused=True)
        for pk in {**vector, **text}
    ]
    return sorted(hits, key=lambda hit: (-hit.score, min(p.rank for p in (hit.vector, hit.text) if p), hit.pk))


def _shares(places: Mapping[Any, Place], least: float) -> dict[Any, float]:
    """Scores above the least, over the best one's."""
    most = max(place.score for place in places.values())
    if most <= least:
        return dict.fromkeys(places, 1.0)
    return {pk: max(0.0, (place.score - least) / (most - least)) for pk, place in places.items()}


def _explained(model: type[Embedded], words: Words, hits: Sequence[Hit]) -> list[Hit]:
    marked = excerpts(model, words, [hit.pk for hit in hits])
    return [
        replace(hit, excerpt=fragments, matched=matched)
        for hit in hits
        for fragments, matched in [marked.get(hit.pk, ((), ()))]
    ]
