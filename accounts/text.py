"""Text from users and their files, made fit for PostgreSQL, as every app needs it.  It stays data: pages escape it."""

from __future__ import annotations

import re
from pathlib import PurePath

from formatting.text import clean

#: Control characters, ends of lines, what is not seen at all, and what turns the direction of what follows (a name
#: could pretend another ending).  Joiners stay: words of several languages have them.
UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


def one_line(text: str, longest: int) -> str:
    """A title as the user gave it: one line, at most `longest` characters; may be empty."""
    return clean(UNPRINTABLE.sub(" ", text))[:longest].strip()


def display_name(name: str) -> str:
    """The user's file name without folders and control characters, at most 255 characters."""
    base = PurePath(name.replace("\\", "/")).name
    return clean(UNPRINTABLE.sub("", base))[:255] or "unnamed"
