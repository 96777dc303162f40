"""What tools return: values that are written to JSON and read from it in one way, and that say what they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


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

    def about(self) -> About:
        """What its values are."""
        return About()

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return present({key: value for key, value in write(self).items() if key in self.model_fields_set})


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty or not known."""
    return {key: value for key, value in data.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value in ([], {}, ())
