"""Read JSON or YAML from people we do not know: UTF-8 only, no NaN, no aliases, no repeated keys, bounded size."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from math import isfinite
from typing import Any

import yaml

from perfmodel.config import ConfigError

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
    _printable(data)
    _finite(data, "")
    return data


def _finite(value: Any, path: str) -> None:
    """Raises ConfigError naming the key of a number that is none: NaN, an infinity, or one that overflows."""
    if isinstance(value, dict):
        for key, item in value.items():
            _finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _finite(item, f"{path}[{number}]")
    elif isinstance(value, float) and not isfinite(value):
        raise ConfigError(path[:120], f"is {value}, which is not a finite number; give a finite number")


def _printable(data: Any) -> None:
    """Raises ConfigError where a string holds what neither UTF-8 nor a database stores: half a surrogate pair, NUL."""
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and re.search("[\ud800-\udfff\x00]", item):
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
