"""Plain text: paragraphs between empty lines, cited by line."""

from __future__ import annotations

from collections.abc import Iterator

from knowledge.documents.limits import Limits
from knowledge.documents.pieces import Block, Piece, pack


def lines_place(first: int, last: int) -> str:
    return f"line {first:,}" if first == last else f"lines {first:,}–{last:,}"


def lines_of(content: str) -> list[str]:
    """As an editor counts them: a form feed or a separator of Unicode begins no line."""
    return content.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def pieces(content: str, limits: Limits) -> list[Piece]:
    return pack(_paragraphs(content), lines_place, limits)


def _paragraphs(content: str) -> Iterator[Block]:
    start, lines = 1, list[str]()
    for number, line in enumerate([*lines_of(content), ""], 1):
        if line.strip():
            if not lines:
                start = number
            lines.append(line.rstrip())
        elif lines:
            yield Block("\n".join(lines), (), start, number - 1, lines=True)
            lines = []
