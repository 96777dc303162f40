"""An event of the Sharding Memory in words: a heading, a sentence, and what it took."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import formatting
from experiments import event_text
from experiments.models import Event, Experiment, RunStatus
from formatting import counted

#: What each agent is called.
ACTORS = {
    "user": "user", "coordinator": "Coordinator", "analyzer": "Analyzer", "proposer": "Proposer", "tuner": "Tuner",
    "worker": "worker",
}  # fmt: skip
_ICONS = {
    "upload": "upload", "config": "gear", "recording": "gear",
    "review": "user", "status": "check", "progress": "clock", "error": "alert",
    "tool_call": "tool", "tool_result": "tool", "model_request": "send", "model_response": "spark", "message": "user",
    "diagnosis": "spark", "proposal": "branch", "measurement": "target", "constraints": "sliders",
    "launch": "send", "campaign": "target",
    "complaint": "alert", "retry": "retry", "stopped": "x", "final": "check", "retention": "db",
}  # fmt: skip
_FAULTS = {
    "rate_limit": "too many requests", "server": "the endpoint failed", "truncated": "the answer was cut off",
    "connect": "no connection", "dns": "unknown host", "timeout": "timed out", "malformed": "malformed response",
    "context": "too long for the model", "unsupported": "a parameter the endpoint does not support",
}  # fmt: skip
_REASONS = {
    "turns": "the turn limit was reached", "tool_calls": "the tool-call limit was reached", "tokens": "the token "
        "limit was reached",
    "time": "the time limit was reached", "money": "the cost limit was reached", "rejected": "the checks rejected "
        "the answer",
    "cancelled": "it was stopped", "fault": "the model could not be reached", "bug": "a tool failed",
}  # fmt: skip
#: Characters of a question that a list shows.
_LONGEST = 600
#: Facts that the sentence already says: where there are no others, nothing is left to unfold.
_SAID = {
    "status": {"from", "to", "took_s", "reason"},
    "progress": {"stage", "text", "fraction", "attempt"},
    "review": {"decision", "comment", "title", "rank", "proposal"},
    "constraints": {"text"},
    "message": {
        "thread", "message", "text", "again", "renamed", "released", "sentence", "deleted", "added", "title",
    },
    "campaign": {"campaign", "change", "trial"},
}  # fmt: skip
_OF_CAMPAIGNS = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried a failed trial of"}
#: A measured slowdown is no success.
_OUTCOME_TONES = {"faster": "ok", "slower": "err"}


@dataclass(frozen=True)
class Line:
    """One event, described.  tone: "", "user", "ok" or "err"; text is plain; code: shown as code before the title's
    words; size_bytes: of its data, 0 where the words say it all."""

    event: Event
    icon: str
    tone: str
    code: str
    title: str
    text: str
    meta: str
    size_bytes: int


def describe(event: Event, experiment: Experiment) -> Line:
    """The event in words.  Whatever the kind, nothing of its data is lost: it unfolds below.

    Reads `brief` where the event has one, and its data only where it has none.
    """
    data = facts(event)
    worded = _OF_STEPS.get(event.kind)
    if worded is not None:
        code, title, text, tone = worded(data)
    else:
        code, (title, text, tone) = "", _words(event, data, _actor_name(event, experiment))
    return Line(
        event=event,
        icon="x" if tone == "err" and event.kind in ("status", "tool_result") else _ICONS.get(event.kind, "list"),
        tone=tone,
        code=code,
        title=title,
        text=text,
        meta=_meta(event, data),
        size_bytes=_size(event, data),
    )


def _size(event: Event, data: Mapping[str, Any]) -> int:
    said = _SAID.get(event.kind)
    if not data or (said is not None and said.issuperset(data) and len(str(data.get("text", ""))) <= _LONGEST):
        return 0
    return event.size_bytes if event.size_bytes is not None else event_text.size_of(event.data)


def facts(event: Event) -> Mapping[str, Any]:
    """What the list shows of an event."""
    data = event.brief if event.brief is not None else event_text.brief(event.kind, event.data)
    data = event.data if data is None else data
    return data if isinstance(data, dict) else {"value": data}


def pretty(event: Event) -> str:
    """The event's data to unfold."""
    return json.dumps(event.data, indent=2, ensure_ascii=False)


Words = tuple[str, str, str]


def _actor_name(event: Event, experiment: Experiment) -> str:
    if event.user is not None:
        return event.user.get_full_name() or event.user.get_username()
    if event.actor == "user":
        return "ASAP Web" if experiment.sample else "A former user"
    return ACTORS.get(event.actor, event.actor)


def _words(event: Event, data: Mapping[str, Any], who: str) -> Words:
    """Title, text and tone of what people and the Coordinator's services did."""
    kind = event.kind
    if kind == "status":
        old, new = data.get("from"), data.get("to")
        title = f"Status: {_label(old)} → {_label(new)}" if old else f"Status: {_label(new)}"
        return title, str(data.get("reason", "")), {"failed": "err", "ready": "ok"}.get(str(new), "")
    if kind == "progress":
        return str(data.get("text", "Progress")), "", ""
    if kind == "upload":
        return f"{who} {'changed the files' if data.get('excluded') else 'uploaded'}", _files(data), "user"
    if kind == "config":
        problems = data.get("errors") or {}
        text = f"{counted(len(problems), 'error')}: {' '.join(str(p) for p in problems.values())}" if problems else ""
        return f"{who} saved the configuration", text, "user"
    if kind == "recording":
        stated = " and ".join(str(data.get(key)).replace("_", " ") for key in ("kind", "program") if data.get(key))
        return f"{who} corrected what was recorded", stated or "as the profile tells", "user"
    if kind == "review":
        what = f"proposal {data.get('rank', '')}: {data.get('title', '')}"
        return f"{who} {data.get('decision', 'decided')} {what}", _quoted(data.get("comment")), "user"
    if kind == "constraints":
        return f"{who} requested new proposals", " ".join(data.get("text") or ()) or "Without constraints.", "user"
    if kind == "message":
        return (*_message(data, who), "user")
    if kind == "diagnosis":
        return f"Diagnosis: {data.get('bottleneck', '')}", str(data.get("statement", "")), ""
    if kind == "proposal":
        items = data.get("proposals") or []
        title = f"{counted(len(items), 'proposal')} from {counted(data.get('considered', 0), 'candidate')}"
        if data.get("added") and items:
            title = f"{who} added proposal {items[0].get('rank')}"
        return title, " ".join(f"{i.get('rank')}: {i.get('title')}." for i in items if isinstance(i, dict)), ""
    if kind == "measurement":
        tone = "err" if data.get("status") == "refused" else _OUTCOME_TONES.get(str(data.get("outcome", "")), "")
        return (*_measurement(data, who), tone)
    if kind == "campaign":
        done = _OF_CAMPAIGNS.get(str(data.get("change", "")), "started")
        return f"{who} {done} a tuning campaign", f"Trial {data['trial']}." if "trial" in data else "", "user"
    if kind == "launch":
        return (*_launch(data, who), "err" if data.get("outcome") == "reject" else "")
    if kind == "retention":
        size = formatting.quantity(data.get("bytes") or 0, "bytes")
        title = f"{data.get('events', 0):,} payloads removed, {size}"
        kept = f"Retention period: {data.get('days')} days. Decisions, measurements and answers are kept."
        return title, kept, ""
    if kind == "error":
        return "Error", str(data.get("reason") or data.get("message") or ""), "err"
    return kind.replace("_", " ").capitalize(), "", ""


def _label(status: Any) -> str:
    return RunStatus(status).label.lower() if status in RunStatus.values else str(status)


def _quoted(text: Any) -> str:
    return f"“{text}”" if text else ""


def _files(data: Mapping[str, Any]) -> str:
    if data.get("excluded"):
        return f"Continues without {data['excluded']}."
    files = data.get("files") or []
    size = sum(file.get("size_bytes") or 0 for file in files)
    names = formatting.first([str(file.get("name", "")) for file in files], 3)
    return f"{names} · {formatting.quantity(size, 'bytes')}"


def _message(data: Mapping[str, Any], who: str) -> tuple[str, str]:
    """What somebody did in a conversation."""
    if data.get("again"):
        return f"{who} asked for another answer", ""
    if data.get("renamed"):
        return f"{who} renamed the conversation", _quoted(data["renamed"])
    if data.get("deleted"):
        return f"{who} deleted the conversation", _quoted(data.get("title"))
    if data.get("added"):
        return f"{who} added a proposal from the conversation", str(data.get("title", ""))
    if data.get("released"):
        return f"{who} removed a constraint or fact of the conversation", str(data.get("sentence", ""))
    return f"{who} asked", _quoted(event_text.cut(data.get("text", ""), _LONGEST))


def _measurement(data: Mapping[str, Any], who: str) -> tuple[str, str]:
    """What the Event of the measured loop says: a link, a result, a failure, or that it is none."""
    what = f"proposal {data.get('rank', '')}: {data.get('title', '')}" if data.get("rank") else "a proposal"
    run = f"{data['name']} · " if data.get("name") else ""
    if data.get("dismissed"):
        return f"{who} marked this as not a run of {data.get('title', 'the proposal')}", ""
    if data.get("unlinked"):
        return f"{who} unlinked its run", ""
    if data.get("linked"):
        return f"{who} linked the run of {what}", str(data.get("name", ""))
    if data.get("outcome") == "failed":
        failure = str(data.get("failure", "")).replace("_", " ")
        return f"{who} reported that {what} failed: {failure}", str(data.get("comment", ""))
    if data.get("reason"):
        return f"Not a measurement of {what}", run + str(data["reason"])
    said = [f"measured {formatting.quantity(data['speedup'], 'speedup')}"] if data.get("speedup") else []
    if data.get("predicted_speedup"):
        said.append(f"predicted {formatting.quantity(data['predicted_speedup'], 'speedup')}")
    return f"Measured {what}", f"{run}{', '.join(said)} per token"


def _launch(data: Mapping[str, Any], who: str) -> tuple[str, str]:
    """What the Event of a launch says: begun, cancelled, or the verdict on both of its arms."""
    what = f"proposal {data.get('rank', '')}: {data.get('title', '')}"
    if data.get("launched"):
        return f"{who} launched {what} with its control arm", counted(data.get("repeats", 0), "repeat") + " of each"
    if data.get("cancelled"):
        return f"{who} cancelled the launch of {what}", ""
    return f"Verdict on {what}: {str(data.get('outcome', '')).replace('_', ' ')}", str(data.get("sentence", ""))


# The steps of an agent: (code, title, text, tone).  Texts are absent once the payload was removed.

Step = tuple[str, str, str, str]
Facts = Mapping[str, Any]


def _request(data: Facts) -> Step:
    last, tools = data.get("last") or {}, data.get("tools") or 0
    parts = [counted(data.get("messages") or 0, "more message" if data.get("since") else "message")]
    parts.append("no tools offered" if data.get("must_answer") and tools else f"{tools} tools offered")
    if data.get("schema"):
        parts.append(f"structured output {data['schema']}")
    said = f" Last: {last['role']}, {_quoted(last['text'])}." if last.get("text") else ""
    return "", f"Asked {data.get('model') or 'the model'}", f"{', '.join(parts).capitalize()}.{said}", ""


def _response(data: Facts) -> Step:
    model, text, calls = data.get("model") or "The model", _quoted(data.get("text")), data.get("calls")
    if calls:
        names = ", ".join(f"`{call.get('name')}`" for call in calls)
        return "", f"{model} called {counted(len(calls), 'tool')}", f"{names}. {text}".strip(), ""
    cut_off = " and was cut off" if data.get("finish") == "length" else ""
    return "", f"{model} answered{cut_off}", text, "err" if cut_off else ""


def _call(data: Facts) -> Step:
    arguments = data.get("arguments")
    return data.get("name") or "tool", "called", f"`{arguments}`" if arguments not in (None, "", "{}") else "", ""


def _result(data: Facts) -> Step:
    name = data.get("name") or "tool"
    if data.get("ok") is False:
        return name, "refused", data.get("error") or "", "err"
    more = f" Truncated in {counted(data['truncated'], 'place')}." if data.get("truncated") else ""
    return name, "returned", f"{data.get('result') or ''}{more}", ""


def _complaint(data: Facts) -> Step:
    what = "format" if data.get("about") == "form" else "content"
    shown = data.get("complaints") or ()
    left = data.get("count", 0) - len(shown)
    more = f" And {left} more." if shown and left > 0 else ""
    return "", f"Answer rejected for its {what}", " ".join(shown) + more, "err"


def _retry(data: Facts) -> Step:
    kind = data.get("fault") or "it failed"
    wait = f" Retried after {formatting.duration(data['wait_s'])}." if data.get("wait_s") else " Retried immediately."
    note = f" {data['note'].capitalize()}." if data.get("note") else ""
    title = f"Request failed: {_FAULTS.get(kind, kind.replace('_', ' '))}"
    return "", title, f"{data.get('sentence') or ''}{note}{wait}".strip(), "err"


def _stopped(data: Facts) -> Step:
    reason = data.get("reason") or ""
    return "", f"Stopped: {_REASONS.get(reason, reason)}", data.get("sentence") or "", "err"


def _final(data: Facts) -> Step:
    source = "the model" if data.get("source") == "model" else "the built-in rules"
    return "", f"Final answer by {source}", _quoted(data.get("answer")), "ok"


_OF_STEPS: dict[str, Callable[[Facts], Step]] = {
    "model_request": _request, "model_response": _response, "tool_call": _call, "tool_result": _result,
    "complaint": _complaint, "retry": _retry, "stopped": _stopped, "final": _final,
}  # fmt: skip


def _meta(event: Event, data: Mapping[str, Any]) -> str:
    """Who, which step, and what it took."""
    parts = ["" if event.actor == "user" else ACTORS.get(event.actor, event.actor)]
    if event.kind in ("model_request", "retry") and (data.get("attempt") or 1) > 1:
        parts.append(f"attempt {data['attempt']}")
    if event.kind == "complaint" and data.get("repair"):
        parts.append(f"repair {data['repair']}")
    usage = data.get("usage")
    if event.kind == "model_response" and isinstance(usage, Mapping):
        about = "about " if usage.get("estimated") else ""
        into, out = formatting.number(usage.get("tokens_in") or 0), formatting.number(usage.get("tokens_out") or 0)
        parts.append(f"{about}{into} tokens in, {out} out")
    elif event.tokens:
        parts.append(f"{formatting.number(event.tokens)} tokens")
    if event.cost_usd is not None:
        parts.append(formatting.dollars(event.cost_usd))
    took = event.duration_s if event.duration_s is not None else data.get("took_s")
    if isinstance(took, int | float) and took >= 0.0005:
        parts.append(formatting.duration(took))
    return " · ".join(part for part in parts if part)
