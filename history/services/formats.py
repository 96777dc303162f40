"""Files of records: CSV, JSON and JSON Lines; what is written reads back unchanged.

CSV holds one record per line.  Lists and sides are JSON in their cells (`before.mesh`, `after.kpis`); simpler ways to
write them are read too (`history.reading`), and a column for each value (`before.kpis.step_time_s`).
Text that a spreadsheet would run as a formula is written with an apostrophe before it, and read without.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from django.http import StreamingHttpResponse
from django.utils import timezone

from formatting.cells import csv_line, unguarded
from history.models import HistoryRecord
from history.reading import COLUMNS, SIDE_KEYS, ReadRow, RowProblem, read_row
from history.record import RECORD, Record
from history.services.store import to_record

FORMATS = ("csv", "json", "jsonl")
CONTENT_TYPES = {"csv": "text/csv", "json": "application/json", "jsonl": "application/jsonl"}
#: One record, in characters.
LONGEST_RECORD = 1_000_000
#: Columns that are no text: their cells are JSON, or what `history.reading` takes for it.
_VALUES = ("chips", "slices", "parameters", "speedup", "topology", "changes", "caveats", "before", "after", "shape")
_CELLS = tuple(
    cell
    for column in COLUMNS
    for cell in ([f"{column}.{key}" for key in SIDE_KEYS] if column in ("before", "after") else [column])
)


class FileError(ValueError):
    """A file that cannot be read at all; the sentence says why and what to do."""


def format_of(name: str, given: str = "") -> str:
    """The format that is asked for, or that the file's name ends with.  Raises FileError."""
    wanted = (given or name.rsplit(".", 1)[-1]).strip().lower().replace("ndjson", "jsonl")
    if wanted not in FORMATS:
        raise FileError(f"Supported formats are .csv, .json and .jsonl; {name[-80:]!r} is none of these.")
    return wanted


def read(file: BinaryIO, kind: str) -> Iterator[ReadRow]:
    """Every row of the file, good and bad, in its order; blank ones are left out.  Raises FileError."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from {"csv": _read_csv, "json": _read_json, "jsonl": _read_lines}[kind](text)
    except UnicodeDecodeError as error:
        raise FileError("The file is not UTF-8 text; save it as UTF-8 and import it again.") from error
    finally:
        text.detach()


def write(records: Iterable[Record], kind: str) -> Iterator[bytes]:
    """The records as a file of this format, in pieces."""
    if kind == "csv":
        yield csv_line(_CELLS).encode()
        yield from (csv_line(_to_cells(record)).encode() for record in records)
        return
    before, between, after = ("", "\n", "\n") if kind == "jsonl" else ("[\n", ",\n", "\n]\n")
    number = 0
    for number, record in enumerate(records, 1):
        text = json.dumps(RECORD.write(record), ensure_ascii=False)
        yield f"{between if number > 1 else before}{text}".encode()
    yield (after if number else before + after if kind == "json" else "").encode()


def download(rows: Iterable[HistoryRecord], kind: str) -> StreamingHttpResponse:
    """Return the rows as a file of this format to keep."""
    pieces = write(map(to_record, rows), kind)
    answer = StreamingHttpResponse(pieces, content_type=f"{CONTENT_TYPES[kind]}; charset=utf-8")
    name = f"asap-history-{timezone.now():%Y-%m-%d}.{kind}"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _to_cells(record: Record) -> Iterator[str]:
    data = RECORD.write(record)
    for cell in _CELLS:
        column, _, key = cell.partition(".")
        value = data[column][key] if key else data[column]
        if isinstance(value, str):
            yield value
        elif column == "topology":
            yield "x".join(map(str, value))
        elif column == "changes":
            yield "; ".join(value)
        else:
            yield "" if value is None or (not value and key != "mesh") else json.dumps(value, ensure_ascii=False)


def _read_csv(text: io.TextIOWrapper) -> Iterator[ReadRow]:
    csv.field_size_limit(LONGEST_RECORD)
    header: list[str] | None = None
    number = 0
    try:
        for number, line in enumerate(csv.reader(text, strict=True), 1):
            if not any(cell.strip() for cell in line):
                continue
            if header is None:
                header = _header(line)
            elif any(cell.strip() for cell in line[len(header) :]):
                yield _bad(number, f"has {len(line)} cells under {len(header)} columns; quote cells that hold commas")
            else:
                yield read_row(number, _from_cells(dict(zip(header, line, strict=False))))
    except csv.Error as error:
        yield _bad(number + 1, f"cannot be read as CSV ({error}); the rest of the file was not read")


def _header(line: list[str]) -> list[str]:
    header = [cell.strip() for cell in line]
    if twice := [name for number, name in enumerate(header) if name and name in header[:number]]:
        raise FileError(f"The column {twice[0]!r} appears twice in the first line; remove or rename one.")
    if not set(header) & set(_CELLS):
        raise FileError(
            "The first line must name the columns, such as id,title,changes,source,speedup; export some records to see "
            "all of them."
        )
    return header


def _from_cells(cells: dict[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, cell in cells.items():
        column, *path = name.split(".", 2)
        is_text = path == ["label"] or column not in _VALUES
        if not name or not (cell if is_text else cell.strip()):
            continue
        value = unguarded(cell) if is_text else _value(cell)
        if not path or column not in ("before", "after"):
            data[name] = value
            continue
        side = data.setdefault(column, {})
        if len(path) == 1:
            side[path[0]] = {**side.get(path[0], {}), **value} if isinstance(value, dict) else value
        elif isinstance(part := side.setdefault(path[0], {}), dict):
            part[path[1]] = value
    return data


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return unguarded(cell)


def _read_lines(text: io.TextIOWrapper) -> Iterator[ReadRow]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield _bad(number, f"is not JSON ({_reason(error)}); write one object on each line")
            continue
        yield read_row(number, data)


def _read_json(text: io.TextIOWrapper) -> Iterator[ReadRow]:
    content = text.read().lstrip()
    if not content.startswith("["):
        raise FileError("The file must be a JSON list of records: [{…}, {…}]; for one object per line use .jsonl.")
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"The file is not JSON ({_reason(error)}); correct it, or use .jsonl.") from error
    yield from (read_row(number, data) for number, data in enumerate(rows, 1))


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return "too deep" if isinstance(error, RecursionError) else "a number with too many digits"


def _bad(number: int, message: str) -> ReadRow:
    return ReadRow(number, None, (RowProblem(number, "", message),))
