"""Text from profiles and users, made fit for PostgreSQL.  It stays data: pages escape it."""

from __future__ import annotations

from typing import Any

from accounts.text import clean, one_line

__all__ = ["clean", "clean_json", "title"]


def title(text: str) -> str:
    """A name for an experiment as the user gave it: one line, at most 200 characters; may be empty."""
    return one_line(text, 200)


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
