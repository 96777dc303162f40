"""An Nsight Systems export opened so that nothing in it can act: read only, tables only, values of bounded length.

A SQLite file is a program as much as data: views, triggers, virtual tables and generated columns run when they are
read.  Only ordinary tables are asked for, with untrusted schema functions off, and what SQLite finds damaged ends the
reading.  Tables differ between versions of Nsight Systems: columns are looked up before they are named.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from formatting import plain

EXPORT_AGAIN = "Export the report again with nsys export --type sqlite, and copy the whole file."
_LONGEST_VALUE = 10_000_000
_ROWS_AT_ONCE = 20_000


class Database:
    """The tables of one export.  Raises IngestError with the file's name for whatever SQLite cannot read."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        _refuse_cut_off(path, name)
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
                self._connection.execute(f"PRAGMA {pragma}")
            listed = self._connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        self.tables = {
            str(table) for table, sql in listed if not re.match(r"\s*CREATE\s+VIRTUAL", str(sql), re.I) and table
        }

    def close(self) -> None:
        self._connection.close()

    def columns(self, table: str) -> set[str]:
        """Names of a table's stored columns; empty where there is no such table."""
        if table not in self.tables:
            return set()
        try:
            rows = self._connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        return {str(row[1]) for row in rows if not row[6]}  # hidden and generated ones compute when read

    def rows(self, table: str, columns: Sequence[str], needed: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows with these columns, None for columns that this version has not; nothing where a needed one is absent."""
        present = self.columns(table)
        if not present or any(column not in present for column in needed):
            return
        wanted = ", ".join(f'"{column}"' if column in present else "NULL" for column in columns)
        try:
            cursor = self._connection.execute(f'SELECT {wanted} FROM "{table}"')
            while batch := cursor.fetchmany(_ROWS_AT_ONCE):
                yield from batch
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> IngestError:
        return IngestError(
            f"{self.name} is a corrupt SQLite file: {' '.join(str(error).split())[:100]}.",
            EXPORT_AGAIN,
            self.name,
            kind="truncated",
            detail=repr(error),
        )


def _refuse_cut_off(path: Path, name: str) -> None:
    """SQLite reads a file that lacks its last pages as if they were empty; its header says how many there are.

    Source: https://www.sqlite.org/fileformat.html, section 1.3 (page size, in-header database size).
    """
    with path.open("rb") as source:
        head = source.read(100)
    if len(head) < 100:
        missing = 100 - len(head)
    else:
        page = int.from_bytes(head[16:18], "big")
        counted = head[24:28] == head[92:96]  # written by a version that keeps the count
        pages = int.from_bytes(head[28:32], "big") if counted else 0
        missing = (65536 if page == 1 else page) * pages - path.stat().st_size
    if missing > 0:
        raise IngestError(
            f"{name} is truncated: {plain(missing, 'bytes')} of the database described by its header are missing.",
            EXPORT_AGAIN,
            name,
            kind="truncated",
        )
