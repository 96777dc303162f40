"""The steps of a recorded answer, or of what an agent did with a run."""

from __future__ import annotations

from typing import Any

from experiments.models import Event, Experiment
from proposals.agents import recorded
from proposals.agents.recorded import STEP_KINDS, Step, last_attempt, run_event


def replayed(experiment: Experiment, **which: Any) -> tuple[list[Event], list[Step]]:
    """Return the Events of the newest attempt and their steps; no steps where payloads were removed.

    which: the answer's `message`, or `run` and `actor`.
    """
    found = experiment.events.filter(kind__in=STEP_KINDS, **{"message": None, **which})
    rows = list(found.select_related("user").order_by("pk"))
    if any(row.removed_at for row in rows):
        return rows, []
    events = last_attempt(run_event(row.kind, row.data) for row in rows)
    return rows[len(rows) - len(events) :], recorded.steps(events)
