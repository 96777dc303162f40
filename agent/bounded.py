"""JSON made small enough for a prompt: lists keep their first entries, texts their first characters, and it is said."""

from __future__ import annotations

import json
import math

from agent.messages import JsonValue

# Entries per list and characters per text, from generous to meagre; the first pair that fits is taken.
_STEPS = ((200, 4000), (100, 2000), (50, 1000), (25, 500), (12, 250), (6, 120), (3, 80), (1, 40))

#: Places of what was left out that are named.
_NOTED = 5


def compact(value: JsonValue) -> str:
    """JSON text without spaces to spare.  ValueError where a number is not finite."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def rounded(value: JsonValue, digits: int = 4) -> JsonValue:
    """Return the value with so many significant digits of its floats, which cost fewer tokens."""
    if isinstance(value, float) and math.isfinite(value):
        short = float(f"{value:.{digits}g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    return value


def visible(value: JsonValue) -> JsonValue:
    """Return the value without keys that begin with an underscore: they are for programs."""
    if isinstance(value, list):
        return [visible(item) for item in value]
    if isinstance(value, dict):
        return {key: visible(item) for key, item in value.items() if not key.startswith("_")}
    return value


def shown(value: JsonValue) -> str:
    """Return the JSON of a result as a model reads it."""
    return compact(rounded(visible(value)))


def bounded(value: JsonValue, max_chars: int) -> tuple[JsonValue, tuple[str, ...]]:
    """The value, shortened until a model reads at most `max_chars` characters of it, and what was left out where."""
    if len(shown(value)) <= max_chars:
        return value, ()
    for entries, chars in _STEPS:
        notes: list[str] = []
        smaller = _shortened(value, "result", entries, chars, notes)
        if len(shown(smaller)) <= max_chars:
            more = len(notes) - _NOTED
            return smaller, (*notes[:_NOTED], *([f"and {more} more places"] if more > 0 else []))
    text = shown(value)
    keep = max(max_chars // 2, 1)  # quoting may double the length
    return text[:keep], (f"result: the first {keep} of {len(text)} characters of its JSON",)


def _shortened(value: JsonValue, path: str, entries: int, chars: int, notes: list[str]) -> JsonValue:
    if isinstance(value, str) and len(value) > chars:
        head = value[:chars]
        end = max(head.rfind(". ") + 1, head.rfind("\n"))  # a sentence that breaks off reads as if it were whole
        head = head[:end] if end > chars // 2 else head
        notes.append(f"{path}: the first {len(head)} of {len(value)} characters")
        return head
    if isinstance(value, list):
        if len(value) > entries:
            notes.append(f"{path}: the first {entries} of {len(value)} entries")
        return [_shortened(item, f"{path}[{i}]", entries, chars, notes) for i, item in enumerate(value[:entries])]
    if isinstance(value, dict):
        return {
            key: item if key.startswith("_") else _shortened(item, f"{path}.{key}", entries, chars, notes)
            for key, item in value.items()
        }
    return value
