"""What a file is, by its bytes.  Its name only tells Markdown from plain text, which are the same bytes."""

from __future__ import annotations

import re
from typing import Literal

from formatting import limit
from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import LIMITS

Kind = Literal["markdown", "text", "pdf"]

ACCEPTED = "PDF, Markdown or plain text"
ENDINGS = (".pdf", ".md", ".markdown", ".txt", ".text", ".rst", ".log")
_MARKDOWN = (".md", ".markdown", ".mdown", ".mkd")
#: A PDF may have a little before its header (ISO 32000, implementation notes).
_PDF_HEADER_WITHIN = 1024
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive or an Office file; export the document as PDF"),
    (b"\xd0\xcf\x11\xe0", "an old Office file; export it as PDF"),
    (b"{\\rtf", "rich text; export it as PDF"),
    (b"%!PS", "PostScript; convert it to PDF"),
    (b"\x89PNG", "an image; add the document that holds its text"),
    (b"\xff\xd8\xff", "an image; add the document that holds its text"),
    (b"GIF8", "an image; add the document that holds its text"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
)
_WEB = re.compile(rb"\s*(<!--.*?-->\s*)?<(!doctype\s+html|html)\b", re.I | re.S)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def kind_of(name: str, content: bytes) -> Kind:
    """The kind of a file with this content.  Raises DocumentError for what is none of them, or too large."""
    if not content.strip():
        raise DocumentError(f"{name} is empty; add a file with text.")
    if b"%PDF-" in content[:_PDF_HEADER_WITHIN]:
        if len(content) > LIMITS.file_bytes:
            raise too_large(name, LIMITS.file_bytes)
        return "pdf"
    for head, what in _OTHERS:
        if content.startswith(head):
            raise DocumentError(f"{name} is {what}.")
    if name.lower().endswith(".pdf"):
        raise DocumentError(f"{name} has the extension .pdf but is not a PDF; export it again.")
    if _WEB.match(content[:4096]):
        raise DocumentError(f"{name} is a web page; print it to PDF, or save its text as Markdown.")
    if len(content) > LIMITS.text_bytes:
        raise too_large(name, LIMITS.text_bytes)
    if control := _CONTROL.search(content):
        raise DocumentError(f"{name} is not {ACCEPTED}: byte {control.start() + 1:,} is not a text character.")
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DocumentError(f"{name} is not UTF-8 in line {line:,}; save it as UTF-8 and add it again.") from None
    return "markdown" if name.lower().endswith(_MARKDOWN) else "text"


def too_large(name: str, limit_bytes: int) -> DocumentError:
    most = limit(limit_bytes, "bytes")
    return DocumentError(f"{name} is larger than {most}; add it in parts, or without its images.", too_large=True)
