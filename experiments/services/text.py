"""Text from profiles and users, made fit for PostgreSQL.  It stays data: pages escape it."""

from __future__ import annotations

from accounts.text import one_line
from formatting.text import clean, clean_json

__all__ = ["clean", "clean_json", "title"]


def title(text: str) -> str:
    """A name for an experiment as the user gave it: one line, at most 200 characters; may be empty."""
    return one_line(text, 200)
