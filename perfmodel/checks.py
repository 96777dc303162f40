"""What people write in files, read by Pydantic: each complaint is one sentence with the field that it is about."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from perfmodel.config import ConfigError


def shown(value: Any) -> str:
    """A value as it appears in a message: short, on one line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number with thousands of digits"
    text = " ".join(text.split())
    return text if len(text) <= 64 else text[:63] + "…"


def suggestion(key: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    near = difflib.get_close_matches(str(key).lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


class Complaints(ValueError):
    """Several ConfigErrors, each with its whole path."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(map(str, self.errors)))


def mapping(value: Any) -> Any:
    """The value, if it maps text to values.  Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of keys to values, not {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"has the key {shown(key)}, which is not text; put it in quotes")
    return value


class FilePart(BaseModel):
    """A mapping of a file.  A key without a value is an absent key.

    PATH: where the mapping is.  Keys that it does not have are ignored; where the context is a list, it gets a warning.
    """

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)
    PATH: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _drop_unset_keys(cls, data: Any, info: ValidationInfo) -> dict[str, Any]:
        for key in mapping(data):
            if key not in cls.model_fields:
                path = f"{cls.PATH}.{key}" if cls.PATH else key
                warn(info, path[:80], f"is not a known key and is ignored{suggestion(key, cls.model_fields)}")
        return {key: value for key, value in data.items() if value is not None}


def warn(info: ValidationInfo, field: str, message: str) -> None:
    """Add a warning to the context, where that is a list."""
    if isinstance(info.context, list):
        info.context.append(str(ConfigError(field, message)))


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: A whole number, also where YAML reads it as 1e5; no text and no truth value.
Whole = Annotated[int, BeforeValidator(_integral), Field(strict=True)]
#: A finite number above zero.
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Bool = Annotated[bool, Field(strict=True)]


def choice(known: Mapping[str, str]) -> PlainValidator:
    """One of `known` (as written → as meant), whatever its case."""

    def read(value: Any) -> str:
        key = value.strip().lower().replace("-", "_") if isinstance(value, str) else ""
        if key in known:
            return known[key]
        hint = suggestion(value, known) if key else ""
        raise ValueError(f"is {shown(value)}; use one of {' '.join(dict.fromkeys(known.values()))}{hint}")

    return PlainValidator(read)


_SENTENCES = {
    "int_type": "must be a whole number, not {input}",
    "float_type": "must be a number, not {input}",
    "bool_type": "must be true or false, not {input}",
    "string_type": "must be text, not {input}",
    "string_too_long": "is {length:,} characters long; at most {max_length:,}",
    "tuple_type": "must be a list, not {input}",
    "dict_type": "must be a mapping of keys to values, not {input}",
    "too_long": "has {actual_length} entries; at most {max_length}",
    "finite_number": "is {input}; give a finite number",
    "greater_than": "is {input}; give a number above zero",
    "greater_than_equal": "is {input}; give a {whole}number of at least {ge:g}",
    "less_than_equal": "is {input}, which is out of range; at most {most}",
}


def complaints(error: ValidationError, path: str = "", missing: Mapping[str, str] | None = None) -> list[ConfigError]:
    """Pydantic's complaints as ConfigErrors.  path: of what was read; missing: what to give where a field is absent."""
    errors: list[ConfigError] = []
    for item in error.errors(include_url=False):
        raised = item.get("ctx", {}).get("error")
        if isinstance(raised, Complaints):
            errors += raised.errors
        elif isinstance(raised, ConfigError):
            errors.append(raised)
        else:
            loc = item["loc"][:-2] if item["loc"][-1:] == ("[key]",) else item["loc"]
            names = [name[:64] for name in loc if isinstance(name, str)]
            field = ".".join([path, *names] if path else names)
            errors.append(ConfigError(field, _sentence(item, (missing or {}).get(field, ""))))
    return errors


def _sentence(item: ErrorDetails, hint: str) -> str:
    values = item.get("ctx", {})
    if item["type"] == "value_error":
        return str(values["error"])
    if item["type"] in ("missing", "too_short"):
        return f"is missing; {hint}" if hint else "is missing"
    most = values.get("le")
    most = f"{most:g}" if isinstance(most, float) else f"{most or 0:,}"
    whole = "whole " if isinstance(values.get("ge"), int) else ""
    given = {"input": shown(item["input"]), "length": len(str(item["input"])), "most": most, "whole": whole}
    return _SENTENCES.get(item["type"], item["msg"]).format(**values, **given)
