"""Nearest neighbours by cosine distance, over pgvector's HNSW index of the vectors' model."""

from __future__ import annotations

from typing import Any

import numpy as np
from django.db import connection, models, transaction
from django.db.models import F, Min, QuerySet, Value
from django.db.models.functions import Cast
from numpy.typing import NDArray
from pgvector.django import CosineDistance, HalfVectorField

from knowledge.embedding.minilm import DIMENSION, NAME

#: Neighbours that the index keeps in view; more finds better and takes longer.
EF_SEARCH = 100


def neighbours(rows: QuerySet[Any], vector: NDArray[np.float32], limit: int) -> QuerySet[Any, Any]:
    """Return (pk, cosine distance) of the rows nearest to a vector, nearest first, by vectors of the same model."""
    return (
        rows.filter(embedding_model=NAME)
        .order_by()
        .annotate(distance=_distance(vector))
        .order_by("distance")
        .values_list("pk", "distance")[:limit]
    )


def _distance(vector: NDArray[np.float32]) -> CosineDistance:
    kind = HalfVectorField(dimensions=DIMENSION)
    given = Cast(Value("[" + ",".join(f"{x:.6g}" for x in vector) + "]"), kind)
    return CosineDistance(Cast(F("embedding"), kind), given)


def nearest(rows: QuerySet[Any], vector: NDArray[np.float32], limit: int) -> list[tuple[Any, float]]:
    """Return (pk, cosine similarity) of the rows nearest to a vector, nearest first."""
    with transaction.atomic(), connection.cursor() as cursor:
        # The index is walked on while a filter drops what it finds.
        cursor.execute(
            "select set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', %s, true)",
            [str(max(EF_SEARCH, min(limit, 1000)))],
        )
        return [(pk, 1.0 - distance) for pk, distance in neighbours(rows, vector, limit)]


def nearest_with_questions(rows: QuerySet[Any], vector: NDArray[np.float32], limit: int) -> list[tuple[Any, float]]:
    """As `nearest`, where rows have questions (`Embedded.questions_in`): the similarity of such a row is the mean of
    its own text's and that of its nearest question.

    The mean, not the larger: a question is nearer to a query than a text is, so that with the larger a row without
    questions, which is every document of a team, would rank lower (measured in docs/knowledge.md).
    """
    likeness = dict(nearest(rows, vector, limit))
    if rows.model.questions_in:
        asked = _nearest_questions(rows.model, vector)
        own = neighbours(rows.filter(pk__in=list(asked)), vector, len(asked))
        likeness |= {pk: (1.0 - distance + asked[pk]) / 2 for pk, distance in own}
    return sorted(likeness.items(), key=lambda item: -item[1])[:limit]


def _nearest_questions(model: type[models.Model], vector: NDArray[np.float32]) -> dict[Any, float]:
    """Similarity of the nearest question, by the row that answers it.  All are compared: they are few thousand."""
    relation: Any = model._meta.get_field(model.questions_in)  # type: ignore[attr-defined]
    questions = relation.related_model._default_manager.filter(embedding_model=NAME)
    to = relation.field.attname
    return {
        pk: 1.0 - distance for pk, distance in questions.order_by().values_list(to).annotate(d=Min(_distance(vector)))
    }
