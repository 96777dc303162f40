"""A cluster for campaigns: commands of the operator in its place, and what workers and the clock do meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from campaigns.models import CampaignStatus, TrialStatus
from campaigns.services import campaigns, launched, running
from launches.models import ArmRun
from launches.services import choices, launching


def enable(people: Any, settings: Any, folder: Path, section: str, **values: Any) -> None:
    """Let the team launch by `command.here`, whose section of the operator's file is given."""
    operator = folder / "launch.toml"
    operator.write_text(f"[command.here]\nshared = true\nteam_lines = true\n{section}\n")
    settings.LAUNCH_CONFIG = str(operator)
    choices.save(people.team, people.administrator, "command.here", values)


def turn(campaign: Any) -> None:
    """What every worker and the clock do once."""
    campaigns.plan(campaign.pk)
    for pk in campaign.trials.filter(status=TrialStatus.WAITING).values_list("pk", flat=True):
        running.run(pk)
    waiting = [ArmRun.Status.QUEUED, ArmRun.Status.COLLECTING]
    for pk in ArmRun.objects.filter(launch__experiment=campaign.experiment_id, status__in=waiting).values_list(
        "pk", flat=True
    ):
        launching.advance(pk)
    launching.follow()
    launched.follow()
    campaign.refresh_from_db()


def settle(campaign: Any, within_s: float = 240.0) -> Any:
    """Turns until the campaign runs no more."""
    end = time.monotonic() + within_s
    while campaign.status == CampaignStatus.RUNNING:
        state = [(t.number, t.status, t.cluster_run and t.cluster_run.reason) for t in campaign.trials.all()]
        assert time.monotonic() < end, state
        turn(campaign)
        time.sleep(0.2)
    return campaign
