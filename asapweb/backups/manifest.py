"""Manifest of a backup, to verify it by: rows of each table, size and SHA-256 of each file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ValidationError

from asapweb.user_error import UserError

MANIFEST, DUMP, FILES = "manifest.json", "database.dump", "files.tar"
#: Parts of the data folder that are no data: other programs' own files, what is temporary, and what is made again.
NOT_DATA = ("postgres", "redis", "run", "logs", "services.json", "uploading", "static", "reserve")
#: Begins the names of folders in which a backup gathers its files.
GATHERED = ".backup-"
CHUNK_BYTES = 1 << 20


class File(BaseModel):
    size_bytes: int
    sha256: str


class Manifest(BaseModel):
    format: int = 1
    created_at: str
    postgresql: int  # major version of the server, and of the programs that read the dump
    dump_sha256: str
    tables: dict[str, int]  # rows by table
    files: dict[str, File]  # by path below the data folder
    missing: list[str] = []  # files that the database named and that were not on disk

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "tables": len(self.tables),
            "rows": sum(self.tables.values()),
            "files": len(self.files),
            "bytes": sum(file.size_bytes for file in self.files.values()),
            "missing": self.missing,
        }


def read(folder: Path) -> Manifest:
    """Return the manifest of a backup; raises UserError if `folder` holds none."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        raise UserError(f"{folder} holds no complete backup: {MANIFEST} cannot be read.") from None


def is_data(name: str) -> bool:
    """Return True if the part `name` of the data folder belongs into a backup."""
    return name not in NOT_DATA and not name.startswith(GATHERED)


class Hashed:
    """A stream that is hashed and counted while it is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest, self.size_bytes = stream, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._digest.update(piece)
        self.size_bytes += len(piece)
        return piece

    def entry(self) -> File:
        """Return size and SHA-256 of the whole stream, read to its end."""
        while self.read(CHUNK_BYTES):
            pass
        return File(size_bytes=self.size_bytes, sha256=self._digest.hexdigest())


def entry_of(path: Path) -> File:
    with path.open("rb") as stream:
        return Hashed(stream).entry()


def difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the first few names under which two mappings differ, as text; "" if they are equal."""
    names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
