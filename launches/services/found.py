"""Launches of an experiment's proposals as values, for the tools that look at a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from experiments.models import Experiment
from launches.models import ArmRun, Launch
from launches.services import arms, collecting
from proposals.agents.tool_result import ABOUT, Result, about
from proposals.services.stored import LAUNCHES

#: Launches that are looked at, newest first.
MOST = 20


def found(experiment: Experiment) -> list[Result]:
    """Return the launches of the experiment's proposals with what their arms measured."""
    rows = Launch.objects.filter(experiment=experiment, proposal__isnull=False)
    return [_found(launch) for launch in rows.select_related("proposal__plan").prefetch_related("runs")[:MOST]]


def _found(launch: Launch) -> Result:
    """Return a proposal run beside its control arm, the baseline run again.

    arms: with the number of runs by state, and the relative standard deviation of step times from run to run.
    """
    runs = list(launch.runs.all())
    judged, rank, page = launch.judged, arms.proposal_of(launch).rank, launch.get_absolute_url()
    summary = judged or collecting.verdict_of(launch, runs)
    measured = {ArmRun.Arm.PROPOSAL: summary.proposal, ArmRun.Arm.CONTROL: summary.control}
    verdict: dict[str, Any] = {
        "verdict": judged.words, "says": judged.sentence, "speedup_per_token": judged.speedup,
        "speedup_low95": judged.low, "speedup_high95": judged.high,
    } if judged else {"verdict": ""}  # fmt: skip
    rows = [
        Result(
            arm=arm.label.lower(), step_time_s=of.median_s, spread=of.spread,
            runs=dict(Counter(run.get_status_display().lower() for run in runs if run.arm == arm)),
        )
        for arm, of in measured.items()
    ]  # fmt: skip
    return Result({
        ABOUT: about("measured", f"launch {launch.pk} of proposal {rank}", page), "launch": launch.pk, "proposal": rank,
        "state": "running" if launch.is_open else "ended", "backend": launch.backend, "arms": rows, **verdict,
        "note": launch.note, "page": page,
    })  # fmt: skip


LAUNCHES.append(found)
