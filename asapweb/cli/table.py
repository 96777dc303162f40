"""Results as text for a terminal: aligned values, tables, and paragraphs where there is prose.

Everything is in `--json`; a table leaves out what would not fit.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDEST_CELL = 48
MOST_ROWS = 20
PROSE = 80  # longer than this is read, not compared
NOTHING = "–"


def as_text(result: Any) -> str:
    """Any JSON-able value, readable; a command with better words for its own brings `as_text` itself."""
    if _is_rows(result):
        return "\n\n".join(_section(row, 0) for row in result)
    return _section(result, 0) if isinstance(result, Mapping) else _cell(result)


def _section(values: Mapping[str, Any], depth: int) -> str:
    indent = "  " * depth
    plain = {key: text for key, value in values.items() if (text := _plain(value)) is not None}
    width = max((len(key) for key in plain), default=0)
    room = max(40, _width() - len(indent) - width - 2)
    lines = []
    for key, text in plain.items():
        first, *rest = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append(f"{indent}{key:<{width}}  {first}")
        lines += [f"{indent}{'':<{width}}  {line}" for line in rest]
    for key, value in values.items():
        if key in plain:
            continue
        lines.append(f"{indent}{key}")
        if _is_rows(value):
            lines.append(_paragraphs(value, depth + 1) if _has_prose(value) else _table(value, depth + 1))
        elif isinstance(value, Mapping):
            lines.append(_section(value, depth + 1))
        else:
            lines += _bullets(value, "  " * (depth + 1))
    return "\n".join(lines)


def _plain(value: Any) -> str | None:
    """One line for the value, or None where it takes more."""
    if isinstance(value, Mapping):
        return _short(value)
    if isinstance(value, list | tuple) and value:
        return None if _is_rows(value) or any(len(str(item)) > 40 for item in value) else _cell(value)
    return _cell(value)


def _short(value: Mapping[str, Any]) -> str | None:
    """The usual objects in their usual short form: a mesh, a step time with its interval, memory."""
    if not value:
        return NOTHING
    if set(value) <= {"ici", "dcn"} and all(isinstance(axes, Mapping) for axes in value.values()):
        ici, dcn = (_axes(value.get(network) or {}) for network in ("ici", "dcn"))
        return f"{ici or 'one chip'}{f' · DCN {dcn}' if dcn else ''}"
    if "estimate" in value and "low80" in value:
        return f"{_cell(value['estimate'])} ({_cell(value['low80'])} to {_cell(value['high80'])})"
    if all(not isinstance(item, Mapping | list | tuple | str) for item in value.values()) and len(value) <= 8:
        return "  ".join(f"{key} {_cell(item)}" for key, item in value.items())
    return None


def _axes(axes: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={size}" for name, size in axes.items() if size != 1)


def _table(rows: Sequence[Mapping[str, Any]], depth: int) -> str:
    more = len(rows) - MOST_ROWS
    rows = rows[:MOST_ROWS]
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        texts = [_compact(row.get(name)) for row in rows]
        empty = all(text in (NOTHING, "") for text in texts)
        if not empty and not any(text is None for text in texts):
            columns[name] = [_cut(text or "") for text in texts]
    indent, room = "  " * depth, _width() - 2 * depth
    widths = {name: max(len(name), *(len(text) for text in texts)) for name, texts in columns.items()}
    kept: list[str] = []
    for name in columns:
        if sum(widths[other] + 2 for other in kept) + widths[name] <= room:
            kept.append(name)
    lines = ["  ".join(f"{name:<{widths[name]}}" for name in kept)]
    lines += ["  ".join(f"{columns[name][i]:<{widths[name]}}" for name in kept) for i in range(len(rows))]
    if more > 0:
        lines.append(f"… and {more} more (--json has all)")
    return "\n".join(indent + line.rstrip() for line in lines)


def _compact(value: Any) -> str | None:
    """A table's cell, or None where the value has no short form."""
    if isinstance(value, Mapping):
        if "total" in value and "capacity" in value:
            return f"{_cell(value['total'])} of {_cell(value['capacity'])}"
        short = _short(value)
        return short if short is not None and len(short) <= WIDEST_CELL else None
    return None if _is_rows(value) else _cell(value)


def _paragraphs(rows: Sequence[Mapping[str, Any]], depth: int) -> str:
    return "\n\n".join(_section(row, depth) for row in rows)


def _bullets(items: Sequence[Any], indent: str) -> list[str]:
    lines: list[str] = []
    for item in items:
        lines += textwrap.wrap(
            _cell(item), max(40, _width()), initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  "
        )
    return lines


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _has_prose(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows differ by sentences; one and the same sentence in all of them is not worth the room."""
    long = {
        (key, str(value))
        for row in rows
        for key, value in row.items()
        if (isinstance(value, str) and len(value) > PROSE and " " in value) or _is_rows(value)
    }
    return len(long) >= len(rows)


def _cell(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "  ".join(f"{key} {_cell(item)}" for key, item in value.items()) or NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value) or NOTHING
    return " ".join(str(value).split())


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns
