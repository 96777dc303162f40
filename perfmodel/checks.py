"""Check values that people wrote, one by one, and keep every complaint with the field it is about."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

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


class Checker:
    """Reads typed values; a wrong one becomes a ConfigError in `errors` and the default in the result."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[str] = []

    def fail(self, field: str, message: str) -> None:
        self.errors.append(ConfigError(field, message))

    def warn(self, field: str, message: str) -> None:
        self.warnings.append(str(ConfigError(field, message)))

    def mapping(self, field: str, value: Any) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(field, f"must be a mapping of keys to values, not {shown(value)}")
            return {}
        for key in value:
            if not isinstance(key, str):
                self.fail(field, f"has the key {shown(key)}, which is not text; put it in quotes")
                return {}
        return value

    def unknown_keys(self, field: str, data: Mapping[str, Any], known: Collection[str]) -> None:
        for key in data:
            if key not in known:
                path = f"{field}.{key}" if field else key
                self.warn(path[:80], f"is not a known key and is ignored{suggestion(key, known)}")

    def integer(self, field: str, value: Any, default: int, *, low: int = 1, high: int) -> int:
        return default if value is None else self.required_integer(field, value, default, low=low, high=high)

    def required_integer(self, field: str, value: Any, default: int, *, low: int = 1, high: int) -> int:
        number = self._whole(value)
        if number is None:
            self.fail(field, f"must be a whole number, not {shown(value)}")
        elif number < low:
            self.fail(field, f"is {shown(number)}; give a whole number of at least {low}")
        elif number > high:
            self.fail(field, f"is {shown(number)}, which is out of range; at most {high:,}")
        else:
            return number
        return default

    @staticmethod
    def _whole(value: Any) -> int | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, float) and isfinite(value) and value == int(value):
            return int(value)
        return value if isinstance(value, int) else None

    def positive(self, field: str, value: Any, *, high: float) -> float | None:
        """A finite positive number, or None with a complaint."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(field, f"must be a number, not {shown(value)}")
        elif isinstance(value, float) and not isfinite(value):
            self.fail(field, f"is {shown(value)}; give a finite number")
        elif value <= 0:
            self.fail(field, f"is {shown(value)}; give a number above zero")
        elif value > high:
            self.fail(field, f"is {shown(value)}, which is out of range; at most {high:g}")
        else:
            return float(value)
        return None

    def choice(self, field: str, value: Any, default: str, known: Mapping[str, str]) -> str:
        """One of `known` (as written → as meant), whatever its case."""
        if value is None:
            return default
        if isinstance(value, str):
            key = value.strip().lower().replace("-", "_")
            if key in known:
                return known[key]
        names = list(dict.fromkeys(known.values()))
        hint = suggestion(value, known) if isinstance(value, str) else ""
        self.fail(field, f"is {shown(value)}; use one of {' '.join(names)}{hint}")
        return default

    def boolean(self, field: str, value: Any, default: bool) -> bool:
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(field, f"must be true or false, not {shown(value)}")
            return default
        return value

    def text(self, field: str, value: Any, *, limit: int) -> str:
        if value is None:
            return ""
        if isinstance(value, bool | Mapping | list):
            self.fail(field, f"must be text, not {shown(value)}")
            return ""
        text = str(value)
        if len(text) > limit:
            self.fail(field, f"is {len(text):,} characters long; at most {limit:,}")
            return ""
        return text
