"""JSON that others wrote, read strictly: every number finite, every key once, no deeper than anything of ours is."""

from __future__ import annotations

import json
import math
from typing import Any

#: Levels of lists and objects.  Ours have fewer than ten; far above, what reads or stores the value recurses too far.
DEEPEST = 64


def loads(text: str | bytes) -> Any:
    """The value.  ValueError where the text is no JSON, repeats a key, nests too deep or has an infinite number."""
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for outer in level
            if isinstance(outer, list | dict)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {DEEPEST} levels")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f'"{twice[:40]}" is given twice')
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number
