"""Text from profiles and users, made fit for PostgreSQL.  It stays data: pages escape it."""

from __future__ import annotations

import re
from typing import Any

#: Control characters, and those that turn the direction of what follows (a name could pretend another ending).
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Without NUL and lone surrogates, which PostgreSQL cannot store."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode()
    return text


def counted(number: int, noun: str) -> str:
    """`1 op`, `2,000 ops`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def title(text: str) -> str:
    """A name for an experiment as the user gave it: one line, at most 200 characters; may be empty."""
    return clean(UNPRINTABLE.sub(" ", text))[:200].strip()


def clean_json(value: Any) -> Any:
    """The same for every string in a JSON value; numbers that JSON has no word for (NaN, infinity) become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
