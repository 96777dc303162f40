"""Whole numbers from text, as ids, counts and ports are written.  A pure function, the only one that reads them."""

from __future__ import annotations


def whole_number(text: str, digits: int = 18) -> int | None:
    """Return the number; None unless `text` is one to `digits` ASCII digits (`²` is a digit, but no number)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
