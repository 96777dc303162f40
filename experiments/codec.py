"""Values of the core to JSON and back, by the types of their fields.

One codec per kind of value: what is stored, what the API and the command line print, and what is read back are the
same.  Pydantic does the work; the values themselves are plain frozen dataclasses.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

Json = dict[str, Any]


class Codec(Generic[T]):
    """JSON objects of one kind of frozen dataclass.

    Fields may come and go: a key that the kind does not know is left out when read, one that is absent takes the
    field's default, so that what an earlier version stored is read as well.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        from pydantic import TypeAdapter  # 16 MB, which a process that only names a kind of value does not need

        return TypeAdapter(self._kind)

    def write(self, value: T) -> Json:
        """Every field, inner values and all, tuples as lists; numbers that JSON has no word for stay as they are."""
        return self._dump(value)

    def plain(self, value: T) -> Json:
        """As `write`, with sentences as plain text: what the API and the command line print."""
        from experiments.sentences import PLAIN

        return self._dump(value, PLAIN)

    def _dump(self, value: T, context: Json | None = None) -> Json:
        # A whole number among `float | str` is written as it is; types are mypy's to complain of.
        dumped: Json = self._adapter.dump_python(value, mode="json", context=context, warnings=False)
        return dumped

    def read(self, data: object) -> T:
        """The value that was written.  Raises ValueError that names the field where the data is of another kind."""
        return self._adapter.validate_python(data)
