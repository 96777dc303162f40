"""What tools return: values that are written to JSON and read from it in one way, and that say what they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, WrapValidator, model_serializer


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
    """Say what one field is, where its name and its result do not say so: `Annotated[float, Is(unit="share")]`.

    subject: "" for a mapping whose keys say it all.
    """

    subject: str | None = None
    unit: str | None = None
    origin: str = ""
    href: str = ""


#: A sentence: it keeps its values as long as it is not written to JSON.
Words = Annotated[str, WrapValidator(lambda text, read: text if isinstance(text, str) else read(text))]
#: Numbers by key, such as the parts of a step: `ici:model` is written `ici_model`.
Numbers = Mapping[str, int | float | None]


class ToolResult(BaseModel):
    """Base of what a tool returns.

    Its JSON leaves out what was not given, is empty or not known, and has keys that paths can name.  Read from JSON,
    also of an earlier version or shortened by `agent.bounded`, a key that is absent is its default and one that is not
    a field is ignored.  What may be a whole number is `int | float`: a float field would write 0 as 0.0.
    """

    model_config = ConfigDict(frozen=True, from_attributes=True, ser_json_inf_nan="constants")

    def about(self) -> About:
        """What its values are."""
        return About()

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = {key: value for key, value in write(self).items() if key in self.model_fields_set}
        return present({key: _keyed(value) if isinstance(value, dict) else value for key, value in given.items()})


R = TypeVar("R", bound=ToolResult)


def taken(kind: type[R], item: object, **more: Any) -> R:
    """Return a result with `more`, and what an item has under the names of its other fields."""
    named = (name for name in kind.model_fields if name not in more and hasattr(item, name))
    return kind(**{name: getattr(item, name) for name in named}, **more)


def written(key: str) -> str:
    """Return the key of a mapping as paths write it: `ici:model` is `ici_model`."""
    return re.sub(r"\W+", "_", key)


def _keyed(data: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in data.items() if value is not None}
    return {written(key) if re.search("[:+, ]", key) else key: value for key, value in known.items()}


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data without what is empty or not known."""
    return {key: value for key, value in data.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value in ([], {}, ())
