"""Blocks of a document, and the passages they are packed into."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from formatting import large
from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import Limits

#: Characters of a passage: about what the embedder reads (256 word pieces), and what it never exceeds.
TARGET = 1000
MOST = 1600
#: Shorter than this a passage says too little alone, where its section has more.
SHORT = 250
#: Of a heading; the passage's title and section are built of them.
HEADING = 160

_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")


@dataclass(frozen=True)
class Block:
    """A paragraph, list, table or code block.

    section: headings above it, outermost first.  first, last: its lines or pages, from 1.  around: what opens and
    closes each part of it when it has to be cut (a code fence, a table's head).  lines: its line ends mean something.
    """

    text: str
    section: tuple[str, ...] = ()
    first: int = 1
    last: int = 1
    around: tuple[str, str] = ("", "")
    lines: bool = False

    @property
    def length(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Piece:
    """A passage.  title: its innermost heading, may be empty; section: all of them; place: as a reader finds it."""

    title: str
    section: str
    place: str
    text: str


def pack(blocks: Iterable[Block], place: Callable[[int, int], str], limits: Limits) -> list[Piece]:
    """The blocks as passages of at most MOST characters, none across two sections.

    place: words for (first, last).  Raises DocumentError where there would be too many.
    """
    groups: list[list[Block]] = []
    characters = 0
    for block in _cut(blocks):
        characters += block.length
        if characters > limits.characters or len(groups) > limits.passages:
            raise DocumentError(
                f"The document has more text than {large(limits.characters)} characters or "
                f"{limits.passages:,} passages; add it in parts.",
                too_large=True,
            )
        group = groups[-1] if groups else []
        together = sum(b.length + 2 for b in group) + block.length
        if group and group[0].section == block.section and _fits(group, together):
            group.append(block)
        else:
            groups.append([block])
    return [_piece(group, place, several) for group, several in _counted(_without_crumbs(groups))]


def _fits(group: list[Block], together: int) -> bool:
    if together <= TARGET:
        return True
    return together <= MOST and sum(b.length + 2 for b in group) < SHORT


def _without_crumbs(groups: list[list[Block]]) -> list[list[Block]]:
    """A short rest of a section joins what stands before it."""
    kept: list[list[Block]] = []
    for group in groups:
        length = sum(b.length + 2 for b in group)
        before = kept[-1] if kept else []
        joins = before and length < SHORT and before[0].section == group[0].section
        if joins and sum(b.length + 2 for b in before) + length <= MOST:
            before.extend(group)
        else:
            kept.append(group)
    return kept


def _counted(groups: list[list[Block]]) -> Iterator[tuple[list[Block], bool]]:
    """Each group, and whether its section has several."""
    for n, group in enumerate(groups):
        section = group[0].section
        beside = [groups[at] for at in (n - 1, n + 1) if 0 <= at < len(groups)]
        yield group, any(other[0].section == section for other in beside)


def _piece(group: list[Block], place: Callable[[int, int], str], several: bool) -> Piece:
    section = group[0].section
    where = place(group[0].first, group[-1].last)
    if section:
        path = "§ " + " > ".join(section)
        where = f"{path}, {where}" if several or not where.startswith("line") else path
    return Piece(
        title=section[-1] if section else "",
        section=" > ".join(section)[:300],
        place=where if len(where) <= 300 else "…" + where[-299:],
        text="\n\n".join(block.text for block in group),
    )


def _cut(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, those that are too long in parts."""
    for block in blocks:
        if not block.text.strip():
            continue
        if block.length <= MOST:
            yield block
            continue
        if block.lines:
            yield from _lines_of(block)
        else:
            yield from (replace(block, text=part) for part in _parts(block.text, TARGET))


def _lines_of(block: Block) -> Iterator[Block]:
    opening, closing = block.around if sum(map(len, block.around)) < TARGET // 2 else ("", "")
    room = TARGET - len(opening) - len(closing)
    part: list[str] = []
    length, start = 0, block.first
    for number, line in enumerate(block.text.split("\n"), block.first):
        for words in _parts(line, room):
            if part and length + len(words) + 1 > room:
                yield _part(block, (opening, *part, closing), start, number - 1)
                part, length, start = [], 0, number
            part.append(words)
            length += len(words) + 1
    if part:
        yield _part(block, (opening, *part, closing), start, block.last)


def _part(block: Block, lines: Iterable[str], first: int, last: int) -> Block:
    text = "\n".join(line for line in lines if line)
    return replace(block, text=text, first=first, last=max(first, last))


def _parts(text: str, room: int) -> Iterator[str]:
    """The text in parts of at most `room` characters: whole sentences where they are short enough, else words."""
    if len(text) <= room:
        yield text
        return
    part = ""
    for sentence in _SENTENCE.split(text):
        for words in _hard(sentence, room):
            if part and len(part) + 1 + len(words) > room:
                yield part
                part = ""
            part = f"{part} {words}" if part else words
    if part:
        yield part


def _hard(text: str, room: int) -> Iterator[str]:
    while len(text) > room:
        at = text.rfind(" ", room // 2, room)
        at = room if at < 0 else at
        yield text[:at]
        text = text[at:].lstrip()
    if text:
        yield text
