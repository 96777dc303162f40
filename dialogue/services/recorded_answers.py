"""Recorded answers of an experiment: which there are, and their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min, Q, QuerySet

from dialogue.models import Message
from experiments.models import Event, Experiment
from proposals.agents import recordings
from proposals.agents.recorded import STEP_KINDS, last_attempt, run_event
from proposals.agents.recordings import Recording, Step

#: Answers that a list shows, newest first.
MOST = 100


@dataclass(frozen=True)
class Answer:
    """A recorded answer in a list.  question: "" where its conversation was deleted; model: "" for the built-in
    reasoner; removed: its payloads are gone."""

    message: int
    thread: int
    question: str
    model: str
    steps: int
    complaints: int
    at: datetime
    removed: bool
    status: str


def answers(experiment: Experiment, thread: int | None = None) -> list[Answer]:
    """The answers of which steps are on record, newest first."""
    steps = experiment.events.filter(kind__in=STEP_KINDS, message__isnull=False)
    if thread is not None:
        steps = steps.filter(thread=thread)
    rows = list(
        steps.order_by()
        .values("message", "thread")
        .annotate(
            steps=Count("pk"), at=Min("created_at"), asked=Max("model"), removed=Max("removed_at"),
            complaints=Count("pk", filter=Q(kind="complaint")),
        )
        .order_by("-message")[:MOST]
    )  # fmt: skip
    known = Message.objects.filter(thread__experiment=experiment).select_related("question")
    stored_answers = known.in_bulk([row["message"] for row in rows])
    listed = []
    for row in rows:
        assert row["message"] is not None
        message = stored_answers.get(row["message"])
        question = message.question.text if message is not None and message.question is not None else ""
        listed.append(
            Answer(
                row["message"], row["thread"] or 0, question, row["asked"] or "", row["steps"], row["complaints"],
                row["at"], row["removed"] is not None, message.get_status_display() if message is not None else "",
            )
        )  # fmt: skip
    return listed


@dataclass(frozen=True)
class Work:
    """What an agent did with a run, in a list."""

    run: int
    agent: str
    model: str
    steps: int
    complaints: int
    at: datetime
    removed: bool


def works(experiment: Experiment) -> list[Work]:
    """The reports and proposals that agents wrote of runs, newest first."""
    steps = experiment.events.filter(kind__in=STEP_KINDS, message=None, run__isnull=False).order_by()
    rows = steps.values("run", "actor").annotate(
        steps=Count("pk"), at=Min("created_at"), asked=Max("model"), removed=Max("removed_at"),
        complaints=Count("pk", filter=Q(kind="complaint")),
    )  # fmt: skip
    return [
        Work(row["run"], row["actor"], row["asked"] or "", row["steps"], row["complaints"], row["at"],
             row["removed"] is not None)
        for row in rows.order_by("-run", "actor")[:MOST]
    ]  # fmt: skip


@dataclass(frozen=True)
class Replayed:
    """What is on record of one answer or one agent's work, with the Events of its steps.

    removed_at: since when its payloads are gone; no steps then.
    """

    events: Sequence[Event]
    recording: Recording
    steps: Sequence[Step]
    removed_at: datetime | None = None


def replayed(experiment: Experiment, message: int) -> Replayed | None:
    """The steps of an answer as they were recorded, of its newest attempt; None where there are none."""
    return _replayed(experiment.events.filter(message=message), message)


def replayed_work(experiment: Experiment, run: int, agent: str) -> Replayed | None:
    """The same of what an agent did with a run."""
    return _replayed(experiment.events.filter(run=run, actor=agent, message=None), None)


def _replayed(recorded: QuerySet[Event], message: int | None) -> Replayed | None:
    rows = list(recorded.filter(kind__in=STEP_KINDS).select_related("user").order_by("pk"))
    if not rows:
        return None
    removed_at = max((row.removed_at for row in rows if row.removed_at is not None), default=None)
    if removed_at is not None:
        return Replayed(rows, Recording((), "", message, rows[0].thread), (), removed_at)
    events = last_attempt(run_event(row.kind, row.data) for row in rows)
    recording = Recording(tuple(events), "", message, rows[0].thread)
    return Replayed(rows[-len(events) :], recording, recordings.steps(recording))
