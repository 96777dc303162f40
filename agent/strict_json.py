"""JSON that others wrote, read strictly: finite numbers, every key once, whole characters, no deeper than ours is."""

from __future__ import annotations

import json
import math
import re
from typing import Any

#: Levels of lists and objects.  Ours have fewer than ten; far above, what reads or stores the value recurses too far.
DEEPEST = 64
#: Half of a character, as JSON can escape it; no UTF-8 and so no page, response or database holds it.
_LONE = re.compile("[\ud800-\udfff]")


def loads(text: str | bytes, *, surrogates: bool = False) -> Any:
    """The value.  surrogates: may stay, as the caller replaces them.

    ValueError where the text is no JSON, repeats a key, has an infinite number or a lone surrogate, or is nested too
    deep.
    """
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(DEEPEST):
        if not surrogates and any(isinstance(item, str) and _LONE.search(item) for item in level):
            raise ValueError("a lone surrogate (\\ud800 to \\udfff) is not a valid character")
        level = [
            item
            for outer in level
            if isinstance(outer, list | dict)
            for item in ((*outer, *outer.values()) if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {DEEPEST} levels")


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(members)
    if len(mapping) < len(members):
        keys = [key for key, _ in members]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f'"{twice[:40]}" is given twice')
    return mapping


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number
