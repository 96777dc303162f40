"""How far the language model is with a run, as the pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.models import Experiment, RunStatus
from proposals.models import PlanRecord
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
        "plan": plan,
        "author": plan.value.author if plan is not None else "",
        "models": consulting.models(),
        "may_ask": ready and not (made is not None and made.is_open),
    }
