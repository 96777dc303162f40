"""JSON that keeps the order of its keys."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.types.json import Json


class OrderedJSONField(models.JSONField):
    """A JSONField in a column of type `json`.

    `jsonb` sorts the keys of objects, but the key order of a mesh is its layout on the topology, major to minor.
    Such a column can be read and written, not searched by its content.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "json"

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        return value if value is None or isinstance(value, Json) else Json(value)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        return super().from_db_value(value, expression, connection) if isinstance(value, str) else value
