"""Results as text for a terminal: scalars as aligned lines, lists of objects as tables."""

from __future__ import annotations

from typing import Any

WIDEST_CELL = 60


def as_text(result: Any) -> str:
    """Any JSON-able value, readable; a command with better words for its own brings `as_text` itself."""
    if isinstance(result, list) and result and all(isinstance(row, dict) for row in result):
        return "\n\n".join(_section(row, 0) for row in result)
    if isinstance(result, dict):
        return _section(result, 0)
    return _cell(result)


def _section(values: dict[str, Any], depth: int) -> str:
    indent = "  " * depth
    plain = {key: value for key, value in values.items() if not _is_nested(value)}
    width = max((len(key) for key in plain), default=0)
    lines = [f"{indent}{key:<{width}}  {_cell(value)}" for key, value in plain.items()]
    for key, value in values.items():
        if not _is_nested(value):
            continue
        lines.append(f"{indent}{key}")
        if isinstance(value, dict):
            lines.append(_section(value, depth + 1))
        else:
            lines.append(_table(value, depth + 1))
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]], depth: int) -> str:
    indent = "  " * depth
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    lines = ["  ".join(column.ljust(width) for column, width in zip(columns, widths, strict=True))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(indent + line.rstrip() for line in lines)


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and not _is_small(value)
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _is_small(value: dict[str, Any]) -> bool:
    return len(value) <= 6 and all(not isinstance(item, dict | list | str) for item in value.values())


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value) or "–"
    text = " ".join(str(value).split())
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"
