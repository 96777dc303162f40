"""Nearest neighbours by cosine distance, over pgvector's HNSW index of the vectors' model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from django.db import connection, transaction
from django.db.models import F, QuerySet, Value
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
    dimension = len(vector)
    own = Cast(F("embedding"), HalfVectorField(dimensions=dimension))
    given = Cast(Value("[" + ",".join(f"{x:.6g}" for x in vector) + "]"), HalfVectorField(dimensions=dimension))
    return (
        rows.filter(embedding_model=model, embedding_dimension=dimension)
        .order_by()
        .annotate(distance=CosineDistance(own, given))
        .order_by("distance")
        .values_list("pk", "distance")[:limit]
    )


def nearest(
    rows: QuerySet[Any], vector: NDArray[np.float32], model: str, limit: int, least: int = 10
) -> list[tuple[Any, float]]:
    """(pk, cosine similarity) of the rows nearest to a vector, nearest first.

    least: fewer than so many from the index are taken for a sign that it gave up.
    """
    found = neighbours(rows, vector, model, limit)
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
        hits = list(found)
        if not few and len(hits) < min(limit, least):
            _set_local({"enable_indexscan": "off"})
            hits = list(found.all())
        _set_local({"enable_indexscan": "on"})
    return [(pk, 1.0 - distance) for pk, distance in hits]


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
