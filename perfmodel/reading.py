"""Read what people write: strict JSON or YAML, and mappings by Pydantic, each complaint one sentence with its field.

Text is UTF-8 without NaN, aliases or repeated keys, and of bounded size.  The model's own data files go through
`read_rows`: a key that is not known, or a missing one, does not load.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Collection, Hashable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
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

    PATH: where the mapping is.  Keys that it does not have are ignored; a context is a list that gets a warning.
    """

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)
    PATH: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _drop_unset_keys(cls, data: Any, info: ValidationInfo) -> dict[str, Any]:
        cls.warn_of_unknown(data, info.context)
        return {key: value for key, value in data.items() if value is not None}

    @classmethod
    def warn_of_unknown(cls, data: Any, warnings: list[str] | None) -> None:
        for key in mapping(data):
            if key not in cls.model_fields:
                path = f"{cls.PATH}.{key}" if cls.PATH else key
                warn(warnings, path[:80], f"is not a known key and is ignored{suggestion(key, cls.model_fields)}")


def warn(warnings: list[str] | None, field: str, message: str) -> None:
    """Add a warning to the list, where there is one."""
    if warnings is not None:
        warnings.append(str(ConfigError(field, message)))


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
    sentence = _SENTENCES.get(item["type"])
    return sentence.format(**values, **given) if sentence else item["msg"]


Row = TypeVar("Row")

#: As `__pydantic_config__` of a dataclass: no other keys than its fields.
EXACT = ConfigDict(extra="forbid")


class DataError(ValueError):
    """A file shipped with the model is wrong: the row, the key and why.  Our bug, not the user's."""


def shipped(name: str) -> dict[str, Any]:
    """A data file of the model, parsed."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def read_rows(kind: type[Row], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Rows by name as values of a dataclass or model.  Raises DataError."""
    try:
        return TypeAdapter(dict[str, kind]).validate_python(rows)  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


#: A configuration is a few kilobytes; a megabyte is somebody's log.
MAX_BYTES = 1_000_000
MAX_DEPTH = 40


def decode(raw: bytes) -> str:
    """Text of strict UTF-8 bytes, without a byte-order mark.  Raises ConfigError."""
    if len(raw) > MAX_BYTES:
        raise ConfigError("", f"the configuration is {len(raw):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            "", f"not UTF-8 text: byte {error.start} cannot be decoded; save the file as UTF-8"
        ) from error
    return text.removeprefix("\ufeff")


def parse_text(text: str, *, yaml_only: bool = False) -> dict[str, Any]:
    """The mapping that JSON (text that starts with a brace) or YAML describes.  Raises ConfigError with line number."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigError("", f"the configuration is longer than {MAX_BYTES:,} bytes")
    if not text.strip():
        raise ConfigError("", "the configuration is empty; see docs/configuration.md for a minimal one")
    try:
        data = _json(text) if text.lstrip()[:1] in "{[" and not yaml_only else _yaml(text)
    except RecursionError as error:
        raise ConfigError("", "the configuration is nested too deeply") from error
    if not isinstance(data, dict):
        raise ConfigError("", "the configuration must be a mapping of keys to values")
    _check(data, "")
    return data


def _check(value: Any, path: str) -> None:
    """Raise ConfigError where a number is not finite, naming its key, or where a string holds what neither UTF-8 nor a
    database stores: half a surrogate pair, NUL."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check(str(key), path)
            _check(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check(item, f"{path}[{number}]")
    elif isinstance(value, float) and not isfinite(value):
        raise ConfigError(path[:120], f"is {value}, which is not a finite number; give a finite number")
    elif isinstance(value, str) and re.search("[\ud800-\udfff\x00]", value):
        raise ConfigError("", "a string contains a character that is not valid Unicode; write it in UTF-8")


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ConfigError("", f"the key {key[:60]!r} is given twice; keep one")
            result[key] = value
        return result

    try:
        return json.loads(text, parse_int=_integer, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ConfigError("", f"not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error


def _integer(text: str) -> int:
    if len(text) > 30:
        raise ConfigError("", f"the number {text[:20]}… is out of range")
    return int(text)


class _StrictLoader(yaml.SafeLoader):
    """YAML 1.2 core types only: a date, `yes` or `4:4` stays text, and `1e5` is a number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise ConfigError("", f"YAML aliases (*name) are not supported; write the value out{_where(event)}")
        self._depth = getattr(self, "_depth", 0) + 1
        if self._depth > MAX_DEPTH:
            raise ConfigError("", "the configuration is nested too deeply")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool | None):
                raise ConfigError("", f"a key must be plain text{_where(key_node)}")
            if key in seen:
                raise ConfigError("", f"the key {str(key)[:60]!r} is given twice; keep one{_where(key_node)}")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _where(marked: Any) -> str:
    mark = getattr(marked, "start_mark", None)
    return f" in line {mark.line + 1}" if mark is not None else ""


def _scalar(convert: Any) -> Any:
    return lambda loader, node: convert(loader.construct_scalar(node))


def _yaml_integer(text: str) -> int:
    return _integer(text.replace("_", ""))


def _yaml_float(text: str) -> float:
    plain = text.replace("_", "").lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))


for _tag, _pattern, _first, _convert in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    ("null", r"~|null|Null|NULL|", "~nN\0", lambda text: None),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789", _yaml_integer),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789", _yaml_float),
    ("nan", r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)", "-+.", _yaml_float),
):
    _name = f"tag:yaml.org,2002:{_tag}"
    _StrictLoader.add_implicit_resolver(_name, re.compile(f"^(?:{_pattern})$"), [*_first] + [""] * ("\0" in _first))
    _StrictLoader.add_constructor(_name, _scalar(_convert))


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError("", f"not valid YAML: {problem}{_where_error(error)}") from error


def _where_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
