"""Recorded answers and reports of agents of an experiment: which there are, and the steps of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from dialogue.models import Message
from experiments.models import Event, Experiment
from proposals.agents import recorded
from proposals.agents.recorded import STEP_KINDS, Step, last_attempt, run_event

#: Rows that a list shows, newest first.
MOST = 100
_COLUMNS = {
    "steps": Count("pk"), "at": Min("created_at"), "asked": Max("model"), "removed": Max("removed_at"),
    "complaints": Count("pk", filter=Q(kind="complaint")),
}  # fmt: skip


def listed(experiment: Experiment, thread: int | None = None) -> list[dict[str, Any]]:
    """The answers of which steps are on record, then what agents (`actor`) did with a run; newest first.

    question: "" where the conversation was deleted.  thread: only the answers in it.
    """
    steps = experiment.events.filter(kind__in=STEP_KINDS).order_by()
    answers = steps.filter(message__isnull=False, **({"thread": thread} if thread is not None else {}))
    rows = _grouped(answers, "message", "thread")
    known = Message.objects.filter(thread__experiment=experiment).select_related("question")
    stored = known.in_bulk([row["message"] for row in rows])
    for row in rows:
        message = stored.get(row["message"])
        row["question"] = message.question.text if message is not None and message.question is not None else ""
        row["status"] = message.get_status_display() if message is not None else ""
    if thread is not None:
        return rows
    return rows + _grouped(steps.filter(message=None, run__isnull=False), "run", "actor")


def _grouped(steps: QuerySet[Event], *keys: str) -> list[dict[str, Any]]:
    order = (f"-{keys[0]}", *keys[1:])
    return [dict(row) for row in steps.values(*keys).annotate(**_COLUMNS).order_by(*order)[:MOST]]


@dataclass(frozen=True)
class Replayed:
    """Hold what is on record of one answer or one agent's work, of its newest attempt, with the Events of its steps.

    removed_at: since when its payloads are gone; no steps then.
    """

    events: Sequence[Event]
    steps: Sequence[Step]
    removed_at: datetime | None = None


def replayed(experiment: Experiment, **which: Any) -> Replayed | None:
    """The steps as they were recorded; None where there are none.  which: the answer's `message`, or `run` and
    `actor`."""
    found = experiment.events.filter(kind__in=STEP_KINDS, **{"message": None, **which})
    rows = list(found.select_related("user").order_by("pk"))
    if not rows:
        return None
    removed_at = max((row.removed_at for row in rows if row.removed_at is not None), default=None)
    if removed_at is not None:
        return Replayed(rows, (), removed_at)
    events = last_attempt(run_event(row.kind, row.data) for row in rows)
    return Replayed(rows[-len(events) :], recorded.steps(events))
