"""Where a step of an agent differs from a recorded one, in what it means and not in how long it took."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.events import ModelRequest, RunEvent, ToolReturned, event_to_json

#: What depends on the clock, the machine, the price list or who answers, and not on the code that is checked.
_PASSING = ("duration_s", "first_token_s", "cost_usd", "wait_s", "provider", "key")
#: Numbers count as the same within this share: another processor rounds otherwise.
_ROUNDING = 1e-6
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
#: Characters shown around what differs.
_AROUND = 60


@dataclass(frozen=True)
class Difference:
    """Where a second answer parts from the record.  step: from 1; then, now: what differs, shortened around it."""

    step: int
    what: str
    then: str
    now: str

    @property
    def sentence(self) -> str:
        return f"Differs at step {self.step}, {self.what}: was {self.then}, is {self.now}."


def compare(then: RunEvent, now: RunEvent, step: int) -> Difference | None:
    """Where two steps differ in what they mean; None where they do not."""
    if then.kind != now.kind:
        words = then.kind.replace("_", " "), now.kind.replace("_", " ")
        return Difference(step, "another kind of step", f"a {words[0]}", f"a {words[1]}")
    old, new = event_to_json(then), event_to_json(now)
    place = _differing({k: v for k, v in old.items() if k not in _PASSING},
                       {k: v for k, v in new.items() if k not in _PASSING}, "")  # fmt: skip
    if place is not None:
        return Difference(step, _event_name(then, place[0]), *place[1:])
    return None


def event_difference(then: RunEvent, now: RunEvent, step: int) -> Difference | None:
    """What else differs between two requests whose messages are the same to the letter."""
    if isinstance(then, ModelRequest) and isinstance(now, ModelRequest) and then.key != now.key:
        what = "a tool's description or arguments, or the answer's schema"
        return Difference(step, what, f"key {then.key[:12]}", f"key {now.key[:12]}")
    return None


def _event_name(event: RunEvent, path: str) -> str:
    name = event.kind.replace("_", " ")
    if isinstance(event, ToolReturned):
        name = f"the result {event.result_id} of `{event.name}`"
    return f"{name}{f' at {path}' if path else ''}"


def _differing(then: Any, now: Any, path: str) -> tuple[str, str, str] | None:
    """The first place at which two JSON values differ: path, and both around it."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in (*then, *(key for key in now if key not in then)):
            if key in _PASSING:
                continue
            if key not in then or key not in now:
                return f"{path}.{key}".lstrip("."), _short(then.get(key)), _short(now.get(key))
            difference = _differing(then[key], now[key], f"{path}.{key}".lstrip("."))
            if difference is not None:
                return difference
        return None
    if isinstance(then, list) and isinstance(now, list):
        for index, (one, other) in enumerate(zip(then, now, strict=False)):
            difference = _differing(one, other, f"{path}[{index}]")
            if difference is not None:
                return difference
        if len(then) != len(now):
            return path, f"{len(then)} entries", f"{len(now)} entries"
        return None
    if _number(then) and _number(now):
        return None if _close(float(then), float(now)) else (path, _short(then), _short(now))
    if isinstance(then, str) and isinstance(now, str):
        at = _texts_part(then, now)
        return None if at is None else (path, _excerpt_at(then, at), _excerpt_at(now, at))
    return None if then == now else (path, _short(then), _short(now))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _ROUNDING * max(abs(one), abs(other))


def _texts_part(then: str, now: str) -> int | None:
    """Where two texts part, numbers within rounding apart; None where they do not."""
    if then == now:
        return None
    first = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), min(len(then), len(now)))
    if _NUMBER.sub("#", then) != _NUMBER.sub("#", now):
        return first
    pairs = zip(_NUMBER.finditer(then), _NUMBER.finditer(now), strict=True)
    return next((a.start() for a, b in pairs if not _close(float(a[0]), float(b[0]))), None)


def _excerpt_at(text: str, at: int) -> str:
    start = max(at - _AROUND // 2, 0)
    end = start + _AROUND
    return repr(("…" if start else "") + text[start:end] + ("…" if end < len(text) else ""))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _AROUND else text[: _AROUND - 1] + "…"
