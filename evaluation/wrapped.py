"""Generated pages in the form of those written by hand: wrapped paragraphs, percentages as `47 %`, and as
`221 %` where three digits are before the point."""

from __future__ import annotations

import re
import textwrap

WIDTH = 120


def wrapped(page: str) -> str:
    """Markdown with long lines wrapped, except tables, headings and images.  No text has code blocks."""
    page = re.sub(r"(?<=\d)%", " %", page)
    page = re.sub(r"(?<![\d.,])\d{3,}\.\d+(?= %)", lambda share: f"{float(share[0]):.0f}", page)
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
