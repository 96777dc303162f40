"""Small PDFs, made as the format says: ISO 32000."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from typing import Any

from pypdf import PdfReader, PdfWriter


def pdf(pages: Sequence[Sequence[str]], *, contents: bytes | None = None) -> bytes:
    """A PDF whose pages hold these lines, in Helvetica.  contents: another compressed stream for every page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for lines in pages:
        drawn = "BT /F1 11 Tf 14 TL 50 780 Td " + " ".join(f"({_escaped(line)}) Tj T*" for line in lines) + " ET"
        packed = contents if contents is not None else zlib.compress(drawn.encode("latin-1"))
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    return written(objects)


def written(objects: Sequence[bytes]) -> bytes:
    """Objects 1, 2, … as a file with its table of offsets; the first is the catalogue."""
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def with_bookmarks(content: bytes, bookmarks: Sequence[tuple[str, int, int]]) -> bytes:
    """The PDF with (title, page index, depth) as its outline."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    above: list[Any] = []
    for title, page, depth in bookmarks:
        del above[depth:]
        parent = above[-1] if above else None
        above.append(writer.add_outline_item(title=title, page_number=page, parent=parent))
    return _bytes(writer)


def encrypted(content: bytes, user_password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.encrypt(user_password, "owner", algorithm="AES-256")
    return _bytes(writer)


def _bytes(writer: PdfWriter) -> bytes:
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def bomb(megabytes: int = 400) -> bytes:
    """One page whose content unpacks to so much; the file itself is a thousandth of it."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b" " * 1_000_000) for _ in range(megabytes)) + packer.flush()
    return pdf([[]], contents=packed)
