"""The steps of a run as a reader sees them: what is done and how long it took, what is being done, what failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from experiments.models import Event, Run, RunStatus

#: Kinds of Events that tell how a run goes.
PROGRESS_EVENTS = ("status", "progress")

#: What each step is about, while nothing more exact is known of it.
_STEPS = (
    (RunStatus.UPLOADED, "Uploaded", ""),
    (RunStatus.INGESTING, "Ingesting", "the profile is converted in a sandbox and read"),
    (RunStatus.CONFIGURING, "Configuration", "chips, mesh and model, confirmed by you"),
    (RunStatus.DIAGNOSING, "Diagnosing", "KPIs, ops, collectives per axis"),
    (RunStatus.PROPOSING, "Proposing", "legal meshes, predicted and ranked"),
    (RunStatus.CHECKING, "Checking", "legality and memory"),
    (RunStatus.READY, "Ready", ""),
)
#: Words for a step that is behind us.
_DONE = {
    "ingesting": "Ingested", "configuring": "Configured", "diagnosing": "Diagnosed", "proposing": "Proposed",
    "checking": "Checked",
}  # fmt: skip


@dataclass
class Step:
    """One step.  state: done, now, wait or fail.  took_s: None where it has not ended; since: when it began."""

    key: str
    label: str
    state: str
    detail: str = ""
    took_s: float | None = None
    since: datetime | None = None
    fraction: float | None = None

    @property
    def age_s(self) -> float:
        """Seconds since it began."""
        return max(0.0, (timezone.now() - self.since).total_seconds()) if self.since else 0.0


def steps_of(run: Run, events: Iterable[Event]) -> list[Step]:
    """The run's steps from its own status and progress events, in order.

    A step before the first status of a retried run was done by an earlier one, and says so.
    """
    entered: dict[str, datetime] = {}
    left: dict[str, datetime] = {}
    details: dict[str, str] = {}
    fractions: dict[str, float | None] = {}
    for event in events:
        if event.kind == "status":
            to, old = event.data.get("to", ""), event.data.get("from")
            entered.setdefault(to, event.created_at)
            if old:
                left[old] = event.created_at
        elif event.kind == "progress":
            stage = event.data.get("stage", "")
            details[stage] = str(event.data.get("text", ""))
            fractions[stage] = event.data.get("fraction")

    failed = run.status == RunStatus.FAILED
    current = run.failed_at if failed else run.status
    order = [key for key, _, _ in _STEPS]
    at = order.index(RunStatus(current)) if current in order else 0
    steps = []
    for place, (key, label, about) in enumerate(_STEPS):
        if key == RunStatus.CONFIGURING and key not in entered and current != key:
            continue  # the configuration came with the upload
        if place < at or run.status == RunStatus.READY:
            state = "done"
        elif place == at:
            state = "fail" if failed else "now"
        else:
            state = "wait"
        step = Step(key, _DONE.get(key, label) if state == "done" else label, state)
        step.detail = details.get(key, about if state != "done" else "")
        if state == "done" and not step.detail and key not in entered and key not in (order[0], order[-1]):
            step.detail = "kept from the earlier analysis"
        if key in entered and key in left:
            step.took_s = (left[key] - entered[key]).total_seconds()
        elif state == "now":
            step.since = entered.get(key, run.created_at)
            step.fraction = fractions.get(key)
        steps.append(step)
    return steps
