"""Runs in a process of its own: reads one document under limits and leaves its passages in a file."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    """`JOB_FILE RESULT_FILE` on the command line; exit code 0 with the result written."""
    job = json.loads(Path(sys.argv[1]).read_text())
    limits = Limits(**job["limits"])
    _confine(limits, job["parent"])
    logging.disable()  # pypdf has a word for every oddity, and a hostile file has many
    try:
        answer = _read(Path(job["path"]), job["name"], job["kind"], limits)
    except DocumentError as error:
        answer = {"error": str(error), "too_large": error.too_large}
    except MemoryError:
        answer = {"error": f"{job['name']} needs more than {limits.memory_bytes / 1e6:,.0f} MB of memory to be read; "
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


def _confine(limits: Limits, parent: int) -> None:
    """Limit this process, and end it with its parent."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the limits below still hold
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to be notified
    for kind, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5),
        (resource.RLIMIT_FSIZE, limits.result_bytes, limits.result_bytes),
    ):
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
