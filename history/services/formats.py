"""Files of records: CSV, JSON and JSON Lines, read and written as streams; what is written reads back unchanged.

CSV holds one record per line.  Lists and sides are JSON in their cells (`before.mesh`, `after.kpis`); simpler ways to
write them are read too: `mesh; remat`, `16x16`, `data=8,seq=16`, a column for each KPI (`before.kpis.step_time_s`).
Text that a spreadsheet would run as a formula is written with an apostrophe before it, and read without.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from formatting.cells import guarded, unguarded
from history.record import RECORD, Record
from history.services.rows import COLUMNS, SIDE_KEYS, Complaint, Row, read_row

FORMATS = ("csv", "json", "jsonl")
CONTENT_TYPES = {"csv": "text/csv", "json": "application/json", "jsonl": "application/jsonl"}
#: One record, in characters.
LONGEST_RECORD = 1_000_000
_CHUNK = 64 * 1024
_NUMBERS = {"chips": int, "slices": int, "parameters": float, "speedup": float}
_TEXTS = tuple(
    column
    for column in COLUMNS
    if column not in (*_NUMBERS, "topology", "changes", "caveats", "before", "after", "shape")
)
_CELLS = tuple(
    cell
    for column in COLUMNS
    for cell in ([f"{column}.{key}" for key in SIDE_KEYS] if column in ("before", "after") else [column])
)
_ENCODING = "The file is not UTF-8 text; save it as UTF-8 and import it again."


class FileError(ValueError):
    """A file that cannot be read at all; the sentence says why and what to do."""


def format_of(name: str, given: str = "") -> str:
    """The format that is asked for, or that the file's name ends with.  Raises FileError."""
    wanted = (given or name.rsplit(".", 1)[-1]).strip().lower().replace("ndjson", "jsonl")
    if wanted not in FORMATS:
        raise FileError(f"Supported formats are .csv, .json and .jsonl; {name[-80:]!r} is none of these.")
    return wanted


def read(file: BinaryIO, kind: str) -> Iterator[Row]:
    """Every row of the file, good and bad, in its order; blank ones are left out.  Raises FileError."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from {"csv": _read_csv, "json": _read_json, "jsonl": _read_lines}[kind](text)
    except UnicodeDecodeError as error:
        raise FileError(_ENCODING) from error
    finally:
        text.detach()


def write(records: Iterable[Record], kind: str) -> Iterator[bytes]:
    """The records as a file of this format, in pieces."""
    if kind == "csv":
        yield _line(_CELLS)
        for record in records:
            yield _line(_to_cells(record))
    elif kind == "jsonl":
        for record in records:
            yield json.dumps(RECORD.write(record), ensure_ascii=False).encode() + b"\n"
    else:
        before = b"["
        for record in records:
            yield before + b"\n" + json.dumps(RECORD.write(record), ensure_ascii=False).encode()
            before = b","
        yield b"\n]\n" if before == b"," else b"[]\n"


def _line(cells: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


def _to_cells(record: Record) -> list[str]:
    data = RECORD.write(record)
    cells = []
    for cell in _CELLS:
        column, _, key = cell.partition(".")
        value = data[column][key] if key else data[column]
        if value is None or (value in ("", [], {}) and key != "mesh"):
            cells.append("")
        elif isinstance(value, str):
            cells.append(guarded(value))
        elif column == "topology":
            cells.append("x".join(map(str, value)))
        elif column == "changes" and not any(re.search(r"[;,\s]", item) for item in value):
            cells.append("; ".join(value))
        else:
            cells.append(json.dumps(value, ensure_ascii=False))
    return cells


def _read_csv(text: io.TextIOWrapper) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_RECORD)
    reader = csv.reader(text, strict=True)
    header: list[str] | None = None
    number = 0
    while True:
        number += 1
        try:
            line = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _bad(
                number, f"cannot be read as CSV ({error}); the rest of the file was not read, so correct this first"
            )
            return
        if not any(cell.strip() for cell in line):
            continue
        if header is None:
            header = [cell.strip() for cell in line]
            _check_header(header)
        elif len(line) > len(header) and any(cell.strip() for cell in line[len(header) :]):
            yield _bad(number, f"has {len(line)} cells under {len(header)} columns; quote cells that contain commas")
        else:
            yield _from_cells(number, dict(zip(header, line, strict=False)))


def _check_header(header: list[str]) -> None:
    named = [name for name in header if name]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise FileError(f"The column {twice!r} appears twice in the first line; remove or rename one.")
    if not set(named) & set(_CELLS):
        raise FileError(
            "The first line must name the columns, such as id,title,changes,source,speedup; export some records to see "
            "all of them."
        )


def _from_cells(number: int, cells: dict[str, str]) -> Row:
    data: dict[str, Any] = {}
    errors: list[Complaint] = []
    for name, cell in cells.items():
        column, *path = name.split(".", 2)
        if not name or not cell or (cell.isspace() and (column not in _TEXTS and path != ["label"])):
            continue
        try:
            value = _value(column, path, cell)
        except ValueError as error:
            errors.append(Complaint(number, name, str(error)))
            continue
        if column not in ("before", "after") or not path:
            data[name] = value
            continue
        side = data.setdefault(column, {})
        if len(path) == 1:
            side[path[0]] = {**side.get(path[0], {}), **value} if isinstance(value, dict) else value
        else:
            part = side.setdefault(path[0], {})
            if isinstance(part, dict):
                part[path[1]] = value
    row = read_row(number, data)
    if not errors:
        return row
    mine = {error.column for error in errors}
    if "speedup" in mine:  # it was given, so nothing says that the outcome is missing
        mine.add("outcome")
    others = [error for error in row.errors if error.column not in mine]
    return Row(number, None, (*errors, *others), row.warnings)


def _value(column: str, path: list[str], cell: str) -> Any:
    """What a cell stands for.  Raises ValueError with the sentence."""
    if column in ("before", "after") and path:
        if path == ["label"]:
            return unguarded(cell)
        return _json_object(cell, path[0]) if len(path) == 1 else _free(cell)
    if column in _NUMBERS:
        return _number(cell, _NUMBERS[column])
    if column == "topology":
        if re.fullmatch(r"\s*\d{1,9}(\s*[x×,]\s*\d{1,9})*\s*", cell):
            return [int(size) for size in re.findall(r"\d+", cell)]
        return _json(cell, list, "sizes such as 16x16")
    if column == "changes":
        if cell.lstrip().startswith("["):
            return _json(cell, list, "names such as mesh; remat")
        return [item.strip() for item in re.split(r"[;,]", cell) if item.strip()]
    if column == "caveats":
        return _json(cell, list, "a JSON list of strings") if cell.lstrip().startswith("[") else [unguarded(cell)]
    if column in ("before", "after", "shape"):
        return _json(cell, dict, "a JSON object")
    return unguarded(cell)


def _number(cell: str, kind: type) -> Any:
    text = cell.strip()
    try:
        return kind(text)
    except ValueError:
        pass
    try:
        if kind is int and float(text).is_integer():  # as spreadsheets write whole numbers
            return int(float(text))
    except (ValueError, OverflowError):
        pass
    what = "a whole number" if kind is int else "a number with a decimal point and no thousands separators"
    raise ValueError(f"is {cell[:40]!r}; write {what}")


def _json(cell: str, kind: type, what: str) -> Any:
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ValueError(f"is {cell[:40]!r}; write {what}")
    return value


def _json_object(cell: str, key: str) -> Any:
    if key == "mesh" and re.fullmatch(
        r"\s*[A-Za-z][\w\-]*\s*=\s*\d{1,9}(\s*[,;]\s*[A-Za-z][\w\-]*\s*=\s*\d{1,9})*\s*", cell
    ):
        sizes = {axis: int(size) for axis, size in re.findall(r"([A-Za-z][\w\-]*)\s*=\s*(\d+)", cell)}
        return {"ici": sizes, "dcn": {}}
    example = '{"ici": {"data": 8}}, or data=8,seq=4' if key == "mesh" else '{"key": value}'
    return _json(cell, dict, f"a JSON object such as {example}")


def _free(cell: str) -> Any:
    """A cell below a column of its own, such as `before.kpis.mfu`: JSON where it is, else text."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return unguarded(cell)


def _read_lines(text: io.TextIOWrapper) -> Iterator[Row]:
    number = 0
    while line := text.readline(LONGEST_RECORD):
        number += 1
        if len(line) == LONGEST_RECORD:
            yield _bad(number, f"is longer than {LONGEST_RECORD:,} characters; nothing after it was read")
            return
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield _bad(number, f"is not JSON ({_where(error)}); write one object on each line")
            continue
        yield read_row(number, data)


def _read_json(text: io.TextIOWrapper) -> Iterator[Row]:
    """The objects of one JSON list, without holding the whole of it."""
    decoder = json.JSONDecoder()
    held, number, opened = "", 0, False
    while True:
        chunk = text.read(_CHUNK)
        held += chunk
        held = held.lstrip()
        if not opened:
            if held and not held.startswith("["):
                raise FileError(
                    "The file must be a JSON list of records: [{…}, {…}]; for one object per line use .jsonl."
                )
            if not held:
                if chunk:
                    continue
                raise FileError("The file is empty; it must be a JSON list of records.")
            held, opened = held[1:].lstrip(), True
        while True:
            held = held.lstrip()
            if held.startswith("]"):
                if held[1:].strip() or text.read(_CHUNK).strip():
                    yield _bad(number + 1, "there is text after the end of the list; it was not read")
                return
            if number and held:
                if not held.startswith(","):
                    yield _bad(number + 1, "there is no comma before this record; the rest of the file was not read")
                    return
                if not held[1:].lstrip():
                    break
            item = held[1:].lstrip() if number else held
            try:
                data, end = decoder.raw_decode(item)
            except (ValueError, RecursionError) as error:
                if chunk and len(item) < LONGEST_RECORD and not isinstance(error, RecursionError):
                    break  # the rest of it may follow
                why = _where(error) if held else "the list is not closed"
                yield _bad(number + 1, f"is not JSON ({why}); the rest of the file was not read, so correct this first")
                return
            number += 1
            held = item[end:]
            yield read_row(number, data)


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return "too deep" if isinstance(error, RecursionError) else "a number with too many digits"


def _bad(number: int, message: str) -> Row:
    return Row(number, None, (Complaint(number, "", message),))
