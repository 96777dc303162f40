"""Launches of an experiment's proposals as values, for the tools that look at a run."""

from __future__ import annotations

from collections import Counter

from experiments.models import Experiment
from launches.models import ArmRun, Launch
from launches.services import arms, collecting
from proposals.agents.retrieval import ArmFound, LaunchFound
from proposals.services.stored import LAUNCHES

#: Launches that are looked at, newest first.
MOST = 20


def found(experiment: Experiment) -> list[LaunchFound]:
    """Return the launches of the experiment's proposals with what their arms measured."""
    rows = Launch.objects.filter(experiment=experiment, proposal__isnull=False)
    return [_found(launch) for launch in rows.select_related("proposal__plan").prefetch_related("runs")[:MOST]]


def _found(launch: Launch) -> LaunchFound:
    runs = list(launch.runs.all())
    judged = launch.judged
    summary = judged or collecting.verdict_of(launch, runs)
    measured = {ArmRun.Arm.PROPOSAL: summary.proposal, ArmRun.Arm.CONTROL: summary.control}
    return LaunchFound(
        launch.pk, arms.proposal_of(launch).rank, "running" if launch.is_open else "ended", launch.backend,
        tuple(
            ArmFound(
                arm.label.lower(), Counter(run.get_status_display().lower() for run in runs if run.arm == arm),
                of.median_s, of.spread,
            )
            for arm, of in measured.items()
        ),
        judged.words if judged else "", judged.sentence if judged else "", judged.speedup if judged else None,
        judged.low if judged else None, judged.high if judged else None, launch.note, launch.get_absolute_url(),
    )  # fmt: skip


LAUNCHES.append(found)
