"""What written reports have in common: wrapped paragraphs, shares in percent, and numbers of four digits."""

from __future__ import annotations

import re
import textwrap
from math import isfinite
from typing import Any

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


def percent(value: float | None, digits: int = 1) -> str:
    """A share, from 100 % on without decimals; a dash where it is not known."""
    if value is None or not isfinite(value):
        return "–"
    return f"{100 * value:.{0 if abs(value) >= 0.9995 else digits}f} %"


def rounded(value: Any) -> Any:
    """JSON values with four significant digits; what is no number is null."""
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else None
    return value
