"""Text from outside, made fit for PostgreSQL and JSON.  It stays data: pages escape it."""

from __future__ import annotations

from typing import Any


def clean(text: str) -> str:
    """The text with surrogate pairs joined, and what no database stores (lone surrogates, NUL) replaced by U+FFFD."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")


def clean_json(value: Any) -> Any:
    """A JSON value with every string in it clean; numbers that JSON has no word for (NaN, infinity) become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
