"""Paragraphs of written pages, wrapped like those of pages written by hand."""

from __future__ import annotations

import re
import textwrap

WIDTH = 120


def wrapped(page: str) -> str:
    """Markdown with its long lines wrapped, but for tables, headings and images.  No text has code blocks."""
    return "\n".join(_wrapped(line) for line in page.split("\n"))


def _wrapped(line: str) -> str:
    if len(line) <= WIDTH or line.startswith(("|", "#", "!", "<")):
        return line
    hanging = re.match(r"- ", line)
    return textwrap.fill(
        line,
        WIDTH,
        subsequent_indent="  " if hanging else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
