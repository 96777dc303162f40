"""What is found by words and by meaning: the mixin of every model that `knowledge.retrieval` searches.

A concrete model adds the words: `search = search_column(A="title", B="text")`, and says in `embedding_text` what its
vector stands for.  Rows are written without a vector; `knowledge.tasks.embed` gives them one, and a new one when their
text or the model changes.  A vector keeps the name of its model, and is only compared with vectors of the same one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from hashlib import sha256
from operator import add
from typing import Any, TypeVar

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.search import SearchVector, SearchVectorField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Cast
from pgvector.django import HalfVectorField, HnswIndex

from knowledge.embedding.minilm import DIMENSION, NAME

#: PostgreSQL's dictionary for stems and stop words.
WORDS = "english"


def search_column(**fields: str | tuple[str, ...]) -> models.GeneratedField:
    """A stored column of the stems of text fields, by weight: `search_column(A="title", B=("text", "formula"))`.

    The database keeps it; arrays have to be joined into a text field first.
    """
    parts: list[Any] = [
        SearchVector(field, weight=weight, config=WORDS)
        for weight, names in fields.items()
        for field in ((names,) if isinstance(names, str) else names)
    ]
    return models.GeneratedField(
        expression=reduce(add, parts), output_field=SearchVectorField(), db_persist=True, editable=False
    )


class Embedded(models.Model):
    """A row with a search column and a vector.  `class Meta(Embedded.Meta)`, and its indexes beside these.

    excerpt_fields: what is shown of a hit, joined, with the matched words marked.  stamped_fields: what `stamp` sets.
    questions_in: relation to the questions that a row answers, Embedded themselves; empty where there are none.
    """

    embedding = HalfVectorField(null=True, editable=False)
    embedding_model = models.CharField(max_length=120, blank=True, default="", editable=False)
    embedding_dimension = models.PositiveSmallIntegerField(null=True, editable=False)
    embedded_hash = models.CharField(max_length=64, blank=True, default="", editable=False)  # content_hash it is of
    content_hash = models.CharField(max_length=64, blank=True, default="", editable=False)

    excerpt_fields: tuple[str, ...] = ()
    stamped_fields: tuple[str, ...] = ("content_hash",)
    questions_in: str = ""

    class Meta:
        abstract = True
        indexes = [
            GinIndex(fields=["search"], name="%(class)s_words"),
            HnswIndex(
                OpClass(Cast("embedding", HalfVectorField(dimensions=DIMENSION)), name="halfvec_cosine_ops"),
                name="%(class)s_hnsw_minilm",
                condition=Q(embedding_model=NAME),
            ),
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.stamp()
        if (fields := kwargs.get("update_fields")) is not None:
            kwargs["update_fields"] = {*fields, *self.stamped_fields}
        super().save(*args, **kwargs)

    @abstractmethod
    def embedding_text(self) -> str:
        """What the vector stands for: about 200 words, the essential first."""

    def stamp(self) -> str:
        """Set `content_hash` from the text; `save` does it, before `bulk_create` the caller does (`stamped`)."""
        self.content_hash = sha256(self.embedding_text().encode()).hexdigest()
        return self.content_hash


T = TypeVar("T", bound=Embedded)


def stamped(rows: Iterable[T]) -> list[T]:
    """The rows with their content hashes set, ready for `bulk_create`."""
    made = list(rows)
    for row in made:
        row.stamp()
    return made
