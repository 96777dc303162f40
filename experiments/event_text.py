"""What a list of events needs to know of one without its payload: its words for the search, and the facts of a step.

Payloads are what agents sent and received: prompts, responses, arguments and results of tools.  They can be large, a
list does not read them, and a team may have them removed after a while (`experiments.services.retention`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: What an agent sent, and what it got: kept for as long as the team says.
REMOVABLE_KINDS = ("model_request", "model_response", "tool_call", "tool_result", "complaint")
#: Those and how a run went and ended, which is always kept.
PAYLOAD_KINDS = (*REMOVABLE_KINDS, "retry", "stopped", "final")
#: Different words of one event that the search knows, and the length of one.
MOST_WORDS, LONGEST_WORD = 4_000, 60
#: Characters of a text that a list shows.
SHOWN = 300

_WORD = re.compile(r"[^\W_]+")
#: From here on scripts are written without spaces, and a search must find the middle of a run.
_SPACELESS = "\u2e80"


def split(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits, so `all-reduce.17` is three."""
    return [word.lower()[:LONGEST_WORD] for word in _WORD.findall(text)]


def words(data: Any, *more: str) -> list[str]:
    """The different words of an event's data, keys included, at most MOST_WORDS."""
    distinct: dict[str, None] = {}
    for text in (*more, *_texts(data)):
        for word in split(text):
            distinct[word] = None
            if max(word) >= _SPACELESS:
                distinct.update((word[start:], None) for start in range(1, len(word)))
        if len(distinct) >= MOST_WORDS:
            break
    return list(distinct)[:MOST_WORDS]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def size_of(data: Any) -> int:
    """Bytes of the data as JSON."""
    return len(json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def cut(text: Any, length: int = SHOWN) -> str:
    """The beginning of a text on one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


#: Of a step's data, what a list shows as it is.
_KEPT = {
    "model_request": ("attempt", "model", "since", "schema"),
    "model_response": ("model", "finish", "usage", "first_token_s"),
    "tool_call": ("result_id",),
    "tool_result": ("result_id", "name", "ok"),
    "complaint": ("repair", "about"),
    "retry": ("attempt", "wait_s"),
    "stopped": ("reason",),
    "final": ("source", "turns", "tool_calls", "usage"),
}


def brief(kind: str, data: Any) -> dict[str, Any] | None:
    """Return the facts of a step that a list shows, small whatever the payload; None for kinds that are small
    themselves."""
    if kind not in PAYLOAD_KINDS or not isinstance(data, Mapping):
        return None
    place = {name: data[name] for name in ("thread", "message", "turn") if data.get(name) is not None}
    return {**place, **{key: data.get(key) for key in _KEPT[kind]}, **_shortened(kind, data)}


def _shortened(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a step that are counted, or the beginning of a text."""
    if kind == "model_request":
        messages = _list(data.get("messages"))
        last = _dict(messages[-1]) if messages else {}
        return {
            "messages": len(messages), "tools": len(_list(data.get("tools"))),
            "must_answer": data.get("tool_choice") == "none",
            "last": {"role": last.get("role"), "text": cut(last.get("text") or "")},
        }  # fmt: skip
    if kind == "model_response":
        message = _dict(data.get("said"))
        calls = [_call(call) for call in _list(message.get("tool_calls"))[:12]]
        return {"text": cut(message.get("text") or ""), "calls": calls}
    if kind == "tool_call":
        return _call(data.get("call"))
    if kind == "tool_result":
        error = cut(data["error"]) if data.get("error") else None
        return {"error": error, "result": outline(data.get("result")), "truncated": len(_list(data.get("truncated")))}
    if kind == "complaint":
        told = _list(data.get("complaints"))
        return {"complaints": [cut(each) for each in told[:3]], "count": len(told)}
    if kind == "retry":
        fault = _dict(data.get("fault"))
        sentence, note = cut(fault.get("sentence", "")), cut(data.get("note") or "")
        return {"fault": fault.get("kind"), "sentence": sentence, "note": note}
    if kind == "stopped":
        return {"sentence": cut(data.get("sentence", ""), 600)}
    return {"answer": cut(_plain(data.get("answer")))}


def remaining(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of the facts of a step what is left once its payload is removed: no word of what was said or returned."""
    gone = {"last", "text", "arguments", "error", "result", "complaints"}
    kept = {key: value for key, value in facts.items() if key not in gone}
    if "calls" in kept:
        kept["calls"] = [{"name": _dict(call).get("name")} for call in _list(kept["calls"])]
    return kept


def outline(value: Any) -> str:
    """What a result holds, in a line: the names of an object with the lengths of its lists."""
    if isinstance(value, Mapping):
        parts = [f"{key} ({len(item)})" if isinstance(item, list) else str(key) for key, item in value.items()]
        return cut(", ".join(parts))
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "" if value is None else cut(value)


def _call(call: Any) -> dict[str, Any]:
    named = _dict(call)
    return {"name": named.get("name"), "arguments": cut(named.get("arguments") or "")}


def _plain(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else []
