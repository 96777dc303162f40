"""Nearest neighbours by cosine distance, over pgvector's HNSW index of the vectors' model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from django.db import connection, models, transaction
from django.db.models import F, Min, QuerySet, Value
from django.db.models.functions import Cast
from numpy.typing import NDArray
from pgvector.django import CosineDistance, HalfVectorField

#: Neighbours that the index keeps in view; more finds better and takes longer.
EF_SEARCH = 100
#: pgvector 0.8 walks on while a filter drops what it finds, up to so many rows.
MAX_SCAN_TUPLES = 5_000
#: So few rows behind a filter are compared one by one: sooner done than walking the index for them, and exact.
COMPARED = 3_000


def neighbours(rows: QuerySet[Any], vector: NDArray[np.float32], model: str, limit: int) -> QuerySet[Any, Any]:
    """(pk, cosine distance) of the rows nearest to a vector, nearest first; only vectors of the same model count."""
    return (
        rows.filter(embedding_model=model, embedding_dimension=len(vector))
        .order_by()
        .annotate(distance=_distance(vector))
        .order_by("distance")
        .values_list("pk", "distance")[:limit]
    )


def _distance(vector: NDArray[np.float32]) -> CosineDistance:
    kind = HalfVectorField(dimensions=len(vector))
    given = Cast(Value("[" + ",".join(f"{x:.6g}" for x in vector) + "]"), kind)
    return CosineDistance(Cast(F("embedding"), kind), given)


def nearest(
    rows: QuerySet[Any], vector: NDArray[np.float32], model: str, limit: int, least: int = 10
) -> list[tuple[Any, float]]:
    """(pk, cosine similarity) of the rows nearest to a vector, nearest first.

    least: fewer than so many from the index are taken for a sign that it gave up.
    """
    candidates = neighbours(rows, vector, model, limit)
    few = _expected(rows) <= COMPARED
    with transaction.atomic():
        _set_local(
            {
                "hnsw.iterative_scan": "strict_order",
                "hnsw.ef_search": str(max(EF_SEARCH, min(limit, 1000))),
                "hnsw.max_scan_tuples": str(MAX_SCAN_TUPLES),
                "enable_indexscan": "off" if few else "on",
            }
        )
        hits = list(candidates)
        if not few and len(hits) < min(limit, least):
            _set_local({"enable_indexscan": "off"})
            hits = list(candidates.all())
        _set_local({"enable_indexscan": "on"})
    return [(pk, 1.0 - distance) for pk, distance in hits]


def nearest_with_questions(
    rows: QuerySet[Any], vector: NDArray[np.float32], model: str, limit: int, least: int = 10
) -> list[tuple[Any, float]]:
    """As `nearest`, where rows have questions (`Embedded.questions_in`): the similarity of such a row is the mean of
    its own text's and that of its nearest question.

    The mean, not the larger: a question is nearer to a query than a text is, so that with the larger a row without
    questions, which is every document of a team, would rank lower (measured in docs/knowledge.md).
    """
    likeness = dict(nearest(rows, vector, model, limit, least))
    if rows.model.questions_in:
        asked = _nearest_questions(rows.model, vector, model)
        own = neighbours(rows.filter(pk__in=list(asked)), vector, model, len(asked))
        likeness |= {pk: (1.0 - distance + asked[pk]) / 2 for pk, distance in own}
    return sorted(likeness.items(), key=lambda item: -item[1])[:limit]


def _nearest_questions(model: type[models.Model], vector: NDArray[np.float32], embedder: str) -> dict[Any, float]:
    """Similarity of the nearest question, by the row that answers it.  All are compared: they are few thousand."""
    relation: Any = model._meta.get_field(model.questions_in)  # type: ignore[attr-defined]
    questions = relation.related_model._default_manager.filter(
        embedding_model=embedder, embedding_dimension=len(vector)
    )
    to = relation.field.attname
    return {
        pk: 1.0 - distance for pk, distance in questions.order_by().values_list(to).annotate(d=Min(_distance(vector)))
    }


def _expected(rows: QuerySet[Any]) -> int:
    """How many rows the planner thinks there are."""
    plan = json.loads(rows.order_by().values("pk").explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"])


def _set_local(settings: dict[str, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select " + ", ".join("set_config(%s, %s, true)" for _ in settings),
            [part for pair in settings.items() for part in pair],
        )
