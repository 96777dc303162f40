"""Starts the process that reads a document, and ends it when it takes too much.

The same guard as ingestion's (experiments/ingest/sandbox.py), for a reader in Python: limits on address space,
processor time and written bytes, a clean environment, and a kill of the whole process group when the time is up.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs import child
from knowledge.documents.errors import DocumentError
from knowledge.documents.limits import LIMITS, Limits
from knowledge.documents.pieces import Piece

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Read:
    """pieces: the passages in order; pages: of a PDF; note: a sentence on what of it could not be read."""

    pieces: tuple[Piece, ...]
    pages: int | None = None
    note: str = ""


def read(path: Path, name: str, kind: str, limits: Limits = LIMITS) -> Read:
    """The passages of a stored file.  name: as its owner knows it.  Raises DocumentError."""
    if not path.is_file():
        raise DocumentError(f"The file {name} no longer exists; add it again.")
    with tempfile.TemporaryDirectory(prefix="asap-document-") as folder:
        job, result = Path(folder) / "job.json", Path(folder) / "result.json"
        job.write_text(
            json.dumps(
                {
                    "path": str(path.absolute()),
                    "name": name,
                    "kind": kind,
                    "limits": asdict(limits),
                    "parent": os.getpid(),
                }
            )
        )
        with (Path(folder) / "stderr").open("wb") as said:
            process = child.start("knowledge.documents.worker", str(job), str(result), folder=Path(folder), errors=said)
        try:
            code = process.wait(limits.wall_s)
        except child.TimeoutExpired:
            code = -signal.SIGXCPU
        finally:
            child.end(process)
        return _answer(code, result, Path(folder) / "stderr", name)


def _answer(code: int, result: Path, said: Path, name: str) -> Read:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise DocumentError(f"Reading {name} took too long and was stopped; add it in parts, or as plain text.")
    answer: Any = None
    if code == 0:
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads(result.read_bytes())
    if not isinstance(answer, dict):
        logger.error("the reader of %s ended with %s:\n%s", name, code, said.read_text("utf-8", "replace")[-4000:])
        raise DocumentError(f"{name} could not be read: the reader crashed; export it again, or add it as text.")
    if "error" in answer:
        raise DocumentError(answer["error"], too_large=bool(answer.get("too_large")))
    return Read(tuple(Piece(**each) for each in answer["pieces"]), answer["pages"], answer["note"])
