"""PDF: the text of its pages as paragraphs, cited by page and by its bookmarks.  Runs in the worker process only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

from formatting import listed
from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import Limits
from knowledge.documents.pieces import HEADING, Block, Piece, pack

#: A line at the top or bottom of so many pages is a running head; documents with fewer pages have none.
_RUNNING_PAGES = 4
_RUNNING_SHARE = 0.5
_BOOKMARKS = 5000
_NAMED = 8  # pages that a note names one by one
_LABEL = 12  # letters and digits of a section's number
_NUMBER = re.compile(r"\d+")
_ENDS = (".", ":", "!", "?", ";", "”", ")")

Section = tuple[str, ...]


def pages_place(first: int, last: int) -> str:
    return f"page {first:,}" if first == last else f"pages {first:,}–{last:,}"


def read(path: Path, name: str, limits: Limits) -> tuple[list[Piece], int, str]:
    """(passages, number of pages, what could not be read).  Raises DocumentError."""
    reader, pages = _open(path, name, limits)
    texts: list[list[str]] = []
    broken: list[int] = []
    empty: list[int] = []
    characters = 0
    for number in range(1, pages + 1):
        lines: list[str] = []
        try:
            lines = [line.strip() for line in reader.pages[number - 1].extract_text().split("\n")]
        except MemoryError:
            raise
        except RecursionError:
            broken.append(number)
        except Exception:  # pypdf raises anything on a damaged page; the others may be whole
            broken.append(number)
        else:
            if not any(lines):
                empty.append(number)
        characters += sum(map(len, lines))
        if characters > 2 * limits.characters:
            break  # `pack` refuses it with its sentence
        texts.append(lines)
    if len(broken) == pages:
        raise DocumentError(f"No page of {name} could be read: it is damaged, or unpacks to more than is allowed.")
    if not any(any(lines) for lines in texts):
        raise DocumentError(
            f"{name} contains no text; its pages are probably scanned images. Run text recognition (OCR) on it and "
            "add it again."
        )
    pieces = pack(_blocks(_without_running_heads(texts), _starts(reader)), pages_place, limits)
    return pieces, pages, _note(broken, empty)


def _open(path: Path, name: str, limits: Limits) -> tuple[PdfReader, int]:
    try:
        reader = PdfReader(path, strict=False)
        # Many are encrypted only to forbid printing; the empty password opens them.
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentError(f"{name} is protected by a password; remove it and add the file again.")
        pages = len(reader.pages)
    except DocumentError:
        raise
    except (DependencyError, NotImplementedError):
        raise DocumentError(f"{name} uses unsupported encryption; export it without encryption.") from None
    except MemoryError:
        raise
    except (PyPdfError, RecursionError, ValueError, KeyError, TypeError, AttributeError, IndexError, OSError):
        raise DocumentError(f"{name} is a damaged PDF; export it again, or print it to a new PDF.") from None
    if pages == 0:
        raise DocumentError(f"{name} has no pages; export it again.")
    if pages > limits.pages:
        raise DocumentError(f"{name} has {pages:,} pages; at most {limits.pages:,} are read, so add it in parts.",
                            too_large=True)  # fmt: skip
    return reader, pages


def _starts(reader: PdfReader) -> dict[int, list[Section]]:
    """{page index: the sections that its bookmarks say begin there}; empty where there are none that can be read."""
    starts: dict[int, list[Section]] = {}
    above: Section = ()
    try:
        for depth, title, page in _bookmarks(reader, reader.outline, 0, [_BOOKMARKS]):
            above = (*above[:depth], title)
            starts.setdefault(page, []).append(above)
    except MemoryError:
        raise
    except Exception:  # bookmarks are a convenience; damaged ones are left out
        return {}
    return starts


def _bookmarks(reader: PdfReader, entries: Any, depth: int, left: list[int]) -> Iterator[tuple[int, str, int]]:
    """(depth, title, page index), in the order of the pages as far as the document keeps it."""
    last = -1
    for entry in entries:
        if isinstance(entry, list):
            if depth < 5:
                yield from _bookmarks(reader, entry, depth + 1, left)
            continue
        left[0] -= 1
        page = reader.get_destination_page_number(entry)
        title = " ".join(str(entry.title or "").split())[:HEADING]
        if left[0] < 0 or page is None or page < last or not title:
            continue
        last = page
        yield depth, title, page


def _without_running_heads(pages: Sequence[list[str]]) -> list[list[str]]:
    """The pages without the lines that stand at the top or bottom of most of them, whatever number they carry."""
    if len(pages) < _RUNNING_PAGES:
        return list(pages)
    seen: Counter[str] = Counter()
    for lines in pages:
        written = [line for line in lines if line]
        seen.update({_NUMBER.sub("#", line) for line in (written[:1] + written[-1:])})
    heads = {line for line, count in seen.items() if count >= max(3, _RUNNING_SHARE * len(pages))}
    kept = []
    for lines in pages:
        filled = [n for n, line in enumerate(lines) if line]
        drop = {n for n in filled[:1] + filled[-1:] if _NUMBER.sub("#", lines[n]) in heads}
        kept.append([line for n, line in enumerate(lines) if n not in drop])
    return kept


def _blocks(pages: Sequence[list[str]], starts: Mapping[int, Sequence[Section]]) -> Iterator[Block]:
    current: Section = ()
    for at, lines in enumerate(pages):
        begun = starts.get(at, ())
        for section, part in _under(current, begun, lines):
            for paragraph in _paragraphs(part):
                yield Block(paragraph, section, at + 1, at + 1)
        current = begun[-1] if begun else current


def _under(current: Section, begun: Sequence[Section], lines: list[str]) -> Iterator[tuple[Section, list[str]]]:
    """A page's lines by section: a new one begins where its title stands; what they share, where one is not found."""
    cuts: list[int] = []
    for section in begun:
        title = _letters(section[-1])
        after = cuts[-1] + 1 if cuts else 0
        cut = next((n for n in range(after, len(lines)) if _is_title(_letters(lines[n]), title)), None)
        if cut is None:
            yield _shared([current, *begun]), lines
            return
        cuts.append(cut)
    yield current, lines[: cuts[0] if cuts else len(lines)]
    for section, cut, end in zip(begun, cuts, [*cuts[1:], len(lines)], strict=False):
        yield section, lines[cut + 1 : end]  # the title itself is the section's name


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _is_title(line: str, title: str) -> bool:
    """A heading may carry a number that its bookmark does not, or the other way round."""
    return bool(line) and (line.endswith(title) or title.endswith(line)) and abs(len(line) - len(title)) <= _LABEL


def _shared(sections: Sequence[Section]) -> Section:
    headings: list[str] = []
    for level in zip(*sections, strict=False):
        if len(set(level)) > 1:
            break
        headings.append(level[0])
    return tuple(headings)


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Lines joined: a paragraph ends at an empty line, or where a sentence ends well before the margin."""
    lengths = [len(line) for line in lines if line]
    if not lengths:
        return
    margin = 0.75 * median(lengths)
    text = ""
    for line in [*lines, ""]:
        if not line:
            if text:
                yield text
            text = ""
            continue
        if text.endswith("-") and len(text) > 1 and text[-2].isalpha() and line[0].islower():
            text = text[:-1] + line
        else:
            text = f"{text} {line}" if text else line
        if line.endswith(_ENDS) and len(line) < margin:
            yield text
            text = ""


def _note(broken: Sequence[int], empty: Sequence[int]) -> str:
    parts = []
    if broken:
        parts.append(f"{_named(broken)} could not be read.")
    if empty:
        parts.append(f"{_named(empty)} {'contains' if len(empty) == 1 else 'contain'} no text.")
    return " ".join(parts)


def _named(pages: Sequence[int]) -> str:
    if len(pages) > _NAMED:
        return f"{len(pages):,} pages, the first of them {pages[0]:,},"
    return f"Page{'s' if len(pages) > 1 else ''} {listed([f'{page:,}' for page in pages])}"
