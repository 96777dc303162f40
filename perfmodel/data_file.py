"""The model's own data files, read by Pydantic: a key that is not known, or a missing one, does not load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

Row = TypeVar("Row")

#: As `__pydantic_config__` of a dataclass: no other keys than its fields.
EXACT = ConfigDict(extra="forbid")


class DataError(ValueError):
    """A file shipped with the model is wrong: the row, the key and why.  Our bug, not the user's."""


def read_rows(kind: type[Row], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Rows by name as values of a dataclass or model.  Raises DataError."""
    try:
        return TypeAdapter(dict[str, kind]).validate_python(rows)  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
