"""What tools return: values that are written to JSON and read from it in one way, and that say what they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PlainSerializer, SerializerFunctionWrapHandler, model_serializer


@dataclass(frozen=True)
class About:
    """What the values of a result are.  Empty: as of the result that holds this one.

    origin: of `values.ORIGINS`.  subject: in words, such as `proposal 2`.  href: where the product shows it, as
    `proposal:2`, `finding:1`, `op:KEY`, `kpi:mfu`, `passage:ID` or `record:ID`.
    """

    origin: str = ""
    subject: str = ""
    href: str = ""


@dataclass(frozen=True)
class Is:
    """What one field is, where its name and its result do not say so: `Annotated[float, Is(unit="share")]`."""

    origin: str = ""
    unit: str | None = None
    subject: str = ""
    href: str = ""


class ToolResult(BaseModel):
    """Base of what a tool returns.

    Its JSON leaves out what was not given, is empty or not known.  Read from JSON, also of an earlier version or
    shortened by `agent.bounded`, a key that is absent is its default and one that is not a field is ignored.
    What may be a whole number is `int | float`: a float field would write 0 as 0.0.
    """

    model_config = ConfigDict(frozen=True, from_attributes=True, ser_json_inf_nan="constants")

    #: Fields that are written even if they are empty, and those that come after all others.
    kept: ClassVar[frozenset[str]] = frozenset()
    last: ClassVar[tuple[str, ...]] = ()

    def about(self) -> About:
        """What its values are."""
        return About()

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        data |= {key: data.pop(key) for key in self.last if key in data}
        given = ((key, value) for key, value in data.items() if key in self.model_fields_set)
        return {key: value for key, value in given if key in self.kept or not _is_empty(value)}


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty or not known."""
    return {key: value for key, value in data.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value in ([], {}, ())


#: On a field whose values are dataclasses: their JSON leaves out the same.
BRIEF = PlainSerializer(lambda value: present(asdict(value)))
