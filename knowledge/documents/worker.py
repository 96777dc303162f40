"""Runs in a process of its own: reads one document under limits and leaves its passages in a file."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from formatting import limit
from jobs.confinement import confine
from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import Limits


def main() -> None:
    """`JOB_FILE RESULT_FILE` on the command line; exit code 0 with the result written."""
    job = json.loads(Path(sys.argv[1]).read_text())
    limits = Limits(**job["limits"])
    confine(
        job["parent"], folder=Path(sys.argv[2]).parent, reads=[Path(job["path"])],
        memory_bytes=limits.memory_bytes, cpu_s=limits.cpu_s, file_bytes=limits.result_bytes,
    )  # fmt: skip
    logging.disable()  # pypdf has a word for every oddity, and a hostile file has many
    try:
        answer = _read(Path(job["path"]), job["name"], job["kind"], limits)
    except DocumentError as error:
        answer = {"error": str(error), "too_large": error.too_large}
    except MemoryError:
        answer = {"error": f"{job['name']} needs more than {limit(limits.memory_bytes, 'bytes')} of memory to be read; "
                  "add it in parts, or without its images.", "too_large": True}  # fmt: skip
    Path(sys.argv[2]).write_text(json.dumps(answer))


def _read(path: Path, name: str, kind: str, limits: Limits) -> dict[str, Any]:
    pages: int | None = None
    note = ""
    # Imported now: whatever these load counts against the limits.
    if kind == "pdf":
        from knowledge.documents import pdf

        pieces, pages, note = pdf.read(path, name, limits)
    else:
        from knowledge.documents import markdown, plain

        content = path.read_bytes().decode("utf-8-sig")
        pieces = (markdown if kind == "markdown" else plain).pieces(content, limits)
    if not pieces:
        raise DocumentError(f"{name} contains only headings; add a file with text.")
    return {"pieces": [asdict(piece) for piece in pieces], "pages": pages, "note": note}
