"""Markdown: its blocks under their headings, as they are written; cited by section, and by line where one is long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from knowledge.documents.limits import Limits
from knowledge.documents.pieces import HEADING, MOST, Block, Piece, pack
from knowledge.documents.plain import lines_of, lines_place

_COMMENT = re.compile(r"<!--.*?(-->|$)", re.S)
#: Front matter of static site generators is no text.
_FRONT_LINES = 100


def pieces(content: str, limits: Limits) -> list[Piece]:
    return pack(_blocks(content), lines_place, limits)


def _blocks(content: str) -> Iterator[Block]:
    lines = _without_front(lines_of(content))
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(lines))
    headings: list[tuple[int, str]] = []
    for at, token in enumerate(tokens):
        if token.level != 0 or token.map is None:
            continue
        first, end = token.map
        if token.type == "heading_open":
            depth = int(token.tag[1:])
            headings = [each for each in headings if each[0] < depth]
            if words := _words(tokens[at + 1])[:HEADING]:
                headings.append((depth, words))
            continue
        while end > first and not lines[end - 1].strip():
            end -= 1
        text = "\n".join(line.rstrip() for line in lines[first:end])
        if token.type == "html_block":
            text = _COMMENT.sub("", text).strip()
        if token.type == "hr" or not text.strip():
            continue
        section = tuple(words for _, words in headings)
        yield _block(token, text, section, first + 1, end)


def _block(token: Token, text: str, section: tuple[str, ...], first: int, last: int) -> Block:
    """A code block or table that will be cut gives what has to stand around each of its parts."""
    lines = text.split("\n")
    if len(text) > MOST and token.type == "fence" and len(lines) > 1:
        closed = lines[-1].strip().startswith(token.markup)
        inner = lines[1:-1] if closed else lines[1:]
        return Block("\n".join(inner), section, first + 1, last, (lines[0], token.markup), lines=True)
    if len(text) > MOST and token.type == "table_open" and len(lines) > 2:
        return Block("\n".join(lines[2:]), section, first + 2, last, ("\n".join(lines[:2]), ""), lines=True)
    return Block(text, section, first, last, lines=True)


def _words(inline: Token) -> str:
    """The heading's words, without what marks them up."""
    parts = [child.content for child in inline.children or [] if child.type in ("text", "code_inline")]
    return " ".join("".join(parts).split())


def _without_front(lines: Sequence[str]) -> list[str]:
    """Front matter emptied, so that every line keeps its number."""
    rest = list(lines)
    if rest and rest[0].strip() == "---":
        for at in range(1, min(len(rest), _FRONT_LINES)):
            if rest[at].strip() == "---":
                rest[: at + 1] = [""] * (at + 1)
                break
    return rest
