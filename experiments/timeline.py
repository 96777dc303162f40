"""The Sharding Memory as a reader sees it: each event as a heading, a sentence, and its data to unfold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast

from experiments import formatting
from experiments.models import Event, Experiment, RunStatus

PAGE_SIZE = 100

#: Filter chips of the page: key, word, kinds.
GROUPS = (
    ("user", "User", ("upload", "config", "review", "constraints", "message")),
    ("status", "Status", ("status", "progress", "error")),
    ("tool", "Tools", ("tool_call", "tool_result")),
    ("model", "Model", ("model_request", "model_response")),
    ("result", "Results", ("diagnosis", "proposal", "check", "measurement")),
)
_ACTORS = {
    "user": "user", "coordinator": "Coordinator", "analyzer": "Analyzer", "proposer": "Proposer", "worker": "worker",
}  # fmt: skip
_ICONS = {
    "upload": "upload", "config": "gear", "review": "user", "status": "check", "progress": "clock", "error": "alert",
    "tool_call": "tool", "tool_result": "tool", "model_request": "send", "model_response": "spark",
    "diagnosis": "spark", "proposal": "branch", "check": "check", "measurement": "target",
    "constraints": "sliders",
}  # fmt: skip
#: Facts that the sentence already says.
_SAID = {
    "status": {"from", "to", "took_s", "reason"},
    "progress": {"stage", "text", "fraction", "attempt"},
    "review": {"decision", "comment", "title", "rank", "proposal"},
    "constraints": {"text"},
}


@dataclass(frozen=True)
class Line:
    """One event, described.  tone: "", "user", "ok" or "err"; text is plain, data is JSON to unfold."""

    event: Event
    icon: str
    tone: str
    title: str
    text: str
    meta: str
    data: str


def find(experiment: Experiment, group: str = "", q: str = "") -> QuerySet[Event]:
    """The experiment's events of a group whose kind or data holds `q`, oldest first."""
    found = experiment.events.select_related("user", "experiment").order_by("pk")
    kinds = next((kinds for key, _, kinds in GROUPS if key == group), None)
    if kinds:
        found = found.filter(kind__in=kinds)
    if q:
        found = found.annotate(data_text=Cast("data", TextField())).filter(
            Q(kind__icontains=q) | Q(actor__icontains=q) | Q(data_text__icontains=q)
        )
    return found


def groups(experiment: Experiment) -> list[tuple[str, str, int]]:
    """The groups that have events, with their count; first of all `All`."""
    counts = dict(experiment.events.order_by().values_list("kind").annotate(n=Count("pk")))
    rows = [(key, word, sum(counts.get(kind, 0) for kind in kinds)) for key, word, kinds in GROUPS]
    return [("", "All", sum(counts.values())), *(row for row in rows if row[2])]


def totals(experiment: Experiment) -> dict[str, Any]:
    """Events, tool calls, tokens, cost, and the seconds from the first event of the newest run to its end."""
    values = experiment.events.aggregate(
        events=Count("pk"),
        tools=Count("pk", filter=Q(kind="tool_call")),
        tokens=Sum("tokens"),
        cost=Sum("cost_usd"),
    )
    run = experiment.runs.order_by("-pk").first()
    if run is not None:
        span = run.events.aggregate(first=Min("created_at"), last=Max("created_at", filter=Q(data__to=RunStatus.READY)))
        if span["last"]:
            values["seconds"] = (span["last"] - span["first"]).total_seconds()
        values["runs"] = experiment.runs.count()
    return values


def _who(event: Event) -> str:
    if event.user is not None:
        return event.user.get_full_name() or event.user.get_username()
    if event.actor == "user":
        return "The installation" if event.experiment.sample else "A former user"
    return _ACTORS.get(event.actor, event.actor)


def _label(status: Any) -> str:
    return RunStatus(status).label.lower() if status in RunStatus.values else str(status)


def _files(data: dict[str, Any]) -> str:
    if data.get("excluded"):
        return f"goes on without {data['excluded']}"
    files = data.get("files") or []
    size = sum(file.get("size_bytes") or 0 for file in files)
    names = ", ".join(str(file.get("name", "")) for file in files[:3])
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return f"{names}{more} · {formatting.quantity(size, 'bytes')}"


def _measurement(event: Event, data: dict[str, Any]) -> tuple[str, str]:
    """What the Event of the measured loop says: a link, a result, a failure, or that it is none."""
    what = f"proposal {data.get('rank', '')}: {data.get('title', '')}" if data.get("rank") else "a proposal"
    run = f"{data['name']} · " if data.get("name") else ""
    if data.get("dismissed"):
        return f"{_who(event)} says that this is no run of {data.get('title', 'the proposal')}", ""
    if data.get("unlinked"):
        return f"{_who(event)} took back a link to its run", ""
    if data.get("linked"):
        return f"{_who(event)} linked the run of {what}", str(data.get("name", ""))
    if data.get("outcome") == "failed":
        failure = str(data.get("failure", "")).replace("_", " ")
        return f"{_who(event)} reported that {what} failed: {failure}", str(data.get("comment", ""))
    if data.get("reason"):
        return f"Not a measurement of {what}", run + str(data["reason"])
    said = [f"measured {formatting.quantity(data['speedup'], 'speedup')}"] if data.get("speedup") else []
    if data.get("predicted_speedup"):
        said.append(f"predicted {formatting.quantity(data['predicted_speedup'], 'speedup')}")
    return f"Measured {what}", f"{run}{', '.join(said)} per token"


def describe(event: Event) -> Line:
    """The event in words.  Whatever the kind, nothing of its data is lost: it unfolds below."""
    data = event.data if isinstance(event.data, dict) else {"value": event.data}
    title, text, tone = event.kind.replace("_", " ").capitalize(), "", ""
    icon = _ICONS.get(event.kind, "list")
    if event.kind == "status":
        old, new = data.get("from"), data.get("to")
        title = f"Status: {_label(old)} → {_label(new)}" if old else f"Status: {_label(new)}"
        text = str(data.get("reason", ""))
        tone = {"failed": "err", "ready": "ok"}.get(str(new), "")
        icon = "x" if tone == "err" else icon
    elif event.kind == "progress":
        title, text = str(data.get("text", "Progress")), ""
    elif event.kind == "upload":
        verb = "changed the files" if data.get("excluded") else "uploaded"
        title, text, tone = f"{_who(event)} {verb}", _files(data), "user"
    elif event.kind == "config":
        title, tone = f"{_who(event)} gave the configuration", "user"
        problems = data.get("errors") or {}
        text = f"{len(problems)} to correct: {' '.join(str(p) for p in problems.values())}" if problems else ""
    elif event.kind == "review":
        what = f"proposal {data.get('rank', '')}: {data.get('title', '')}"
        title, tone = f"{_who(event)} {data.get('decision', 'decided')} {what}", "user"
        text = f"“{data['comment']}”" if data.get("comment") else ""
    elif event.kind == "constraints":
        title, tone = f"{_who(event)} asked for proposals again", "user"
        text = " ".join(data.get("text") or ()) or "Without constraints."
    elif event.kind == "diagnosis":
        title, text = f"Diagnosis: {data.get('bottleneck', '')}", str(data.get("statement", ""))
    elif event.kind == "proposal":
        items = data.get("proposals") or []
        title = f"{len(items)} proposals from {data.get('considered', 0):,} candidates"
        if data.get("added") and items:
            title = f"{_who(event)} added proposal {items[0].get('rank')}"
        text = " ".join(f"{item.get('rank')}: {item.get('title')}." for item in items if isinstance(item, dict))
    elif event.kind == "measurement":
        title, text = _measurement(event, data)
        tone = {"measured": "ok", "refused": "err"}.get(str(data.get("status", "")), "")
    elif event.kind in ("tool_call", "tool_result"):
        title = str(data.get("tool") or data.get("name") or title)
        text = str(data.get("summary", ""))
    elif event.kind == "error":
        text, tone = str(data.get("reason") or data.get("message") or ""), "err"
    rest = {key: value for key, value in data.items() if key not in _SAID.get(event.kind, set())}
    return Line(
        event=event,
        icon=icon,
        tone=tone,
        title=title,
        text=text,
        meta=_meta(event, data),
        data=json.dumps(rest, indent=2, ensure_ascii=False) if rest else "",
    )


def _meta(event: Event, data: dict[str, Any]) -> str:
    parts = ["" if event.actor == "user" else _ACTORS.get(event.actor, event.actor)]
    if event.tokens:
        parts.append(f"{formatting.number(event.tokens)} tokens")
    took = event.duration_s if event.duration_s is not None else data.get("took_s")
    if isinstance(took, int | float):
        parts.append(formatting.duration(took))
    return " · ".join(part for part in parts if part)
