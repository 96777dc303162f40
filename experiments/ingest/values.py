"""Numbers and texts out of other programs' tables."""

from __future__ import annotations

import math
import re
from typing import Any

GIB = float(1 << 30)

#: Longest HLO text kept whole.
HLO_CHARACTERS = 16_000
#: Attributes that must survive when a longer one is cut: they say who talks to whom.
_GROUPS = re.compile(r"(replica_groups|source_target_pairs|channel_id)=")
_GROUPS_CHARACTERS = 120_000


def number(value: Any) -> float | None:
    """A finite number, from a number or its text; None for anything else (booleans, NaN, `N/A`)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def text(value: Any, limit: int = 2000) -> str:
    """Text without control characters, at most `limit` long.  It is data: whoever shows it escapes it."""
    if value is None or isinstance(value, bool | dict | list):
        return ""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in str(value)[:limit])


def hlo_text(value: Any, limit: int = HLO_CHARACTERS) -> str:
    """HLO text; where it is too long, operands are cut, not the groups of a collective."""
    whole = value if isinstance(value, str) else ""
    if len(whole) <= limit:
        return text(whole, limit)
    groups = _GROUPS.search(whole, 1)
    if groups is None:
        return text(whole[: limit - 2], limit) + " …"
    head = whole[: min(limit // 2, groups.start())]
    return (
        text(head, limit)
        + " … "
        + text(whole[groups.start() : groups.start() + _GROUPS_CHARACTERS], _GROUPS_CHARACTERS)
    )


def gviz_rows(table: Any) -> list[dict[str, Any]]:
    """Rows of a gviz table as dictionaries by column id."""
    if not isinstance(table, dict):
        return []
    ids = [column.get("id") for column in table.get("cols") or []]
    result: list[dict[str, Any]] = []
    for row in table.get("rows") or []:
        cells = [cell.get("v") if isinstance(cell, dict) else None for cell in row.get("c") or []]
        result.append(dict(zip(ids, cells, strict=False)))
    return result


def plain_source(value: Any) -> str:
    """`train.py:12` out of the HTML cell or the chain of frames that XProf's tables carry."""
    whole = text(value, 4000)
    inside = re.search(r">([^<>]*)</", whole)
    first = inside.group(1) if inside else "" if "<" in whole else whole.partition(" -> ")[0]
    return first.strip()[:500]
