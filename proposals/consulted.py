"""How far the language model is with a run, as the pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.models import Event, Experiment, RunStatus
from proposals.models import Consultation, PlanRecord
from proposals.services import consulting


def state(experiment: Experiment, where: str, plan: PlanRecord | None = None) -> dict[str, Any]:
    """What `proposals/_consulting.html` shows.  where: `diagnosis` or `proposals`; plan: the one shown there."""
    made = consulting.newest(experiment)
    ready = experiment.state == RunStatus.READY
    if made is not None and consulting.is_overtaken(made):
        made = None  # of an earlier analysis
    part = "report" if where == "diagnosis" else "proposals"
    said: Mapping[str, Any] = getattr(made, part) if made is not None else {}
    return {
        "experiment": experiment,
        "where": where,
        "made": made,
        "said": said,
        "doing": _doing(made) if made is not None and made.is_open else "",
        "plan": plan,
        "author": plan.value.author if plan is not None else "",
        "models": consulting.models(),
        "may_ask": ready and not (made is not None and made.is_open),
    }


_DOING = {
    "tool_call": "is calling tools", "tool_result": "is calling tools", "model_request": "is waiting for the model",
    "model_response": "has answered", "complaint": "is correcting unsupported statements",
    "retry": "is retrying the endpoint",
}  # fmt: skip
_WHO = {"analyzer": "The Analyzer", "proposer": "The Proposal agent"}


def _doing(made: Consultation) -> str:
    """What the agents do now, from their newest Event."""
    if made.status == Consultation.Status.QUEUED:
        return "Waiting for a worker."
    steps = Event.objects.filter(run_id=made.run_id, created_at__gte=made.created_at, actor__in=_WHO, kind__in=_DOING)
    newest = steps.order_by("-pk").values_list("actor", "kind").first()
    return f"{_WHO[newest[0]]} {_DOING[newest[1]]}." if newest is not None else ""
