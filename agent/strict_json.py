"""JSON of a language model, read strictly: every number finite, and no deeper than anything of ours is."""

from __future__ import annotations

import json
import math
from typing import Any

#: Levels of lists and objects.  Ours have fewer than ten; far above, what reads or stores the value recurses too far.
DEEPEST = 64


def loads(text: str | bytes) -> Any:
    """The value.  ValueError where the text is no JSON, has a number that is not finite, or is nested too deep."""
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=_finite)
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


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number
