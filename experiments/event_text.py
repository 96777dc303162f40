"""What a list of events needs to know of one without its payload: its words for the search, and the facts of a step.

Payloads are what agents sent and received: prompts, responses, arguments and results of tools.  They can be large, a
list does not read them, and a team may have them removed after a while (`experiments.services.retention`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class RequestFacts:
    """messages, tools: how many.  last: role and beginning of the last message."""

    attempt: int | None = None
    model: str | None = None
    messages: int = 0
    since: int | None = None
    tools: int = 0
    must_answer: bool = False
    schema: str | None = None
    last: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ResponseFacts:
    """calls: names and arguments of the tools that it calls."""

    model: str | None = None
    finish: str | None = None
    calls: Sequence[Mapping[str, str]] = ()
    text: str = ""
    usage: Mapping[str, Any] | None = None
    first_token_s: float | None = None


@dataclass(frozen=True)
class CallFacts:
    result_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class ResultFacts:
    """result: see `outline`; truncated: in how many places."""

    result_id: str | None = None
    name: str | None = None
    ok: bool | None = None
    error: str | None = None
    result: str = ""
    truncated: int = 0


@dataclass(frozen=True)
class ComplaintFacts:
    """complaints: the first of them; count: of all."""

    repair: int | None = None
    about: str | None = None
    complaints: Sequence[str] = ()
    count: int = 0


@dataclass(frozen=True)
class RetryFacts:
    attempt: int | None = None
    fault: str | None = None
    sentence: str = ""
    wait_s: float | None = None


@dataclass(frozen=True)
class StoppedFacts:
    reason: str | None = None
    sentence: str = ""


@dataclass(frozen=True)
class FinalFacts:
    source: str | None = None
    answer: str = ""
    turns: int | None = None
    tool_calls: int | None = None
    usage: Mapping[str, Any] | None = None


StepFacts = (
    RequestFacts | ResponseFacts | CallFacts | ResultFacts | ComplaintFacts | RetryFacts | StoppedFacts | FinalFacts
)


def brief(kind: str, data: Any) -> dict[str, Any] | None:
    """The facts of a step that a list shows, small whatever the payload; None for kinds that are small themselves."""
    if kind not in PAYLOAD_KINDS or not isinstance(data, Mapping):
        return None
    place = {name: data[name] for name in ("thread", "message", "turn") if data.get(name) is not None}
    return {**place, **vars(_facts(kind, data))}


def _facts(kind: str, data: Mapping[str, Any]) -> StepFacts:
    if kind == "model_request":
        messages = _list(data.get("messages"))
        last = _dict(messages[-1]) if messages else {}
        return RequestFacts(
            attempt=data.get("attempt"), model=data.get("model"), messages=len(messages), since=data.get("since"),
            tools=len(_list(data.get("tools"))), must_answer=data.get("tool_choice") == "none",
            schema=data.get("schema"), last={"role": last.get("role"), "text": cut(last.get("text") or "")},
        )  # fmt: skip
    if kind == "model_response":
        message = _dict(data.get("said"))
        return ResponseFacts(
            model=data.get("model"), finish=data.get("finish"), text=cut(message.get("text") or ""),
            calls=[_call(call) for call in _list(message.get("tool_calls"))[:12]], usage=data.get("usage"),
            first_token_s=data.get("first_token_s"),
        )  # fmt: skip
    if kind == "tool_call":
        return CallFacts(result_id=data.get("result_id"), **_call(data.get("call")))
    if kind == "tool_result":
        return ResultFacts(
            result_id=data.get("result_id"), name=data.get("name"), ok=data.get("ok"),
            error=cut(data["error"]) if data.get("error") else None, result=outline(data.get("result")),
            truncated=len(_list(data.get("truncated"))),
        )  # fmt: skip
    if kind == "complaint":
        told = _list(data.get("complaints"))
        shown = [cut(each) for each in told[:3]]
        return ComplaintFacts(repair=data.get("repair"), about=data.get("about"), complaints=shown, count=len(told))
    if kind == "retry":
        fault = _dict(data.get("fault"))
        return RetryFacts(
            attempt=data.get("attempt"), fault=fault.get("kind"), sentence=cut(fault.get("sentence", "")),
            wait_s=data.get("wait_s"),
        )  # fmt: skip
    if kind == "stopped":
        return StoppedFacts(reason=data.get("reason"), sentence=cut(data.get("sentence", ""), 600))
    return FinalFacts(
        source=data.get("source"), answer=cut(_plain(data.get("answer"))), turns=data.get("turns"),
        tool_calls=data.get("tool_calls"), usage=data.get("usage"),
    )  # fmt: skip


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
