"""JSON that keeps the order of its keys."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Cast
from psycopg.types.json import Json

#: Text stays readable in the column, so that a search of it as text finds any script.
_as_written = partial(json.dumps, ensure_ascii=False)


class OrderedJSONField(models.JSONField):
    """A JSONField in a column of type `json`.

    `jsonb` sorts the keys of objects, but the key order of a mesh is its layout on the topology, major to minor.
    A search by content reads the column as `jsonb`, and uses no index.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "json"

    def get_transform(self, name: str) -> Any:
        """The value under a key, for lookups: `json` itself cannot be compared."""
        transform: Any = super().get_transform(name)
        return transform and (
            lambda column, *rest, **named: transform(Cast(column, models.JSONField()), *rest, **named)
        )

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        return value if value is None or isinstance(value, Json) else Json(value, dumps=_as_written)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        return super().from_db_value(value, expression, connection) if isinstance(value, str) else value
