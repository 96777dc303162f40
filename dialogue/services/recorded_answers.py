"""The steps of a recorded answer, or of what an agent did with a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.event_text import PAYLOAD_KINDS
from experiments.models import Event, Experiment


@dataclass(frozen=True)
class Step:
    """One step for a reader.  messages: all that were sent until then, those of a request included."""

    number: int
    event: Event
    messages: Sequence[Mapping[str, Any]]

    @property
    def result(self) -> str:
        """What a tool returned, to be read."""
        return json.dumps(self.event.data["result"], indent=2, ensure_ascii=False)


def replayed(experiment: Experiment, **which: Any) -> list[Step]:
    """Return the steps of the newest attempt: a worker that took over from a dead one began anew, with a first look.

    which: the answer's `message`, or `run` and `actor`.
    """
    found = experiment.events.filter(kind__in=PAYLOAD_KINDS, **{"message": None, **which})
    messages: list[Mapping[str, Any]] = []
    steps: list[Step] = []
    for row in found.select_related("user").order_by("pk"):
        if row.kind == "tool_call" and (row.data.get("turn"), row.data.get("result_id")) == (0, "r1"):
            messages, steps = [], []
        if row.kind == "model_request" and not row.removed_at:
            messages = [*messages[: row.data["since"]], *row.data["messages"]]
        steps.append(Step(len(steps) + 1, row, messages))
    return steps
