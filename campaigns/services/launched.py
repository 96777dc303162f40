"""Trials on the team's cluster: each is a launch of its configuration, which no worker waits for.

A worker launches a trial and lets go of it; the launch reports, and the sweep stores what it came to.  Whatever is
stored moves the trial from `launched` by compare-and-set, so that it is stored once however often it is swept.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

from campaigns.backends import Outcome
from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from campaigns.services import results
from campaigns.services.queues import CAMPAIGNS, TRIALS
from formatting.text import clean
from launches.models import ArmRun, Launch
from launches.services import launching
from launches.services.bundles import BundleError
from perfmodel.config import ExperimentConfig

logger = logging.getLogger(__name__)

S = ArmRun.Status


def drafted(campaign: Campaign, config: ExperimentConfig) -> Launch:
    """Raises LaunchError or BundleError where no trial of the campaign could be launched."""
    return launching.drafted(
        campaign.experiment, campaign.created_by, config,
        tool=campaign.tool, steps=campaign.steps or 0, server=campaign.server,
    )  # fmt: skip


def begin(trial: Trial, worker: str, config: ExperimentConfig) -> None:
    """Launch a trial that this worker has, and let go of it.

    What the tool cannot run fails; where the team's settings allow no launch, the campaign pauses until they do.
    """
    rows = TRIALS.row_of_worker(trial.pk, worker)
    try:
        made = drafted(trial.campaign, config)
    except BundleError as error:
        results.failed(rows, trial, results.unread(str(error)))
        return
    except launching.LaunchError as error:
        _put_back(rows, trial.campaign, str(error))
        return
    with transaction.atomic():
        # Held, so that nobody pauses it between the look and the launch.
        status = Campaign.objects.select_for_update().values_list("status", flat=True).get(pk=trial.campaign_id)
        if status == CampaignStatus.PAUSED:
            rows.update(status=TrialStatus.PAUSED, worker="", attempts=0)
            return
        launching.start(made)
        # Nobody has it while it is on the cluster, so that its attempts count anew when it runs again.
        if not rows.update(status=TrialStatus.LAUNCHED, worker="", attempts=0, launch=made):
            transaction.set_rollback(True)


def follow() -> None:
    """Store what ended on the cluster, and end there what no trial waits for any more."""
    on_cluster = Trial.objects.filter(status=TrialStatus.LAUNCHED, launch__closed_at__isnull=False)
    for trial in on_cluster.select_related("campaign__experiment", "launch"):
        try:
            with transaction.atomic():
                _finish(trial)
                CAMPAIGNS.enqueue(trial.campaign_id)
        except Exception:
            logger.exception("trial %s could not be taken from the cluster", trial.pk)
    left = Launch.objects.filter(proposal=None, closed_at=None).exclude(trial__status=TrialStatus.LAUNCHED)
    for launch in left:
        launching.withdraw(launch, "The campaign no longer waits for this trial.")


def _finish(trial: Trial) -> None:
    run = trial.cluster_run
    assert run is not None and trial.launch is not None
    rows = Trial.objects.filter(pk=trial.pk, status=TrialStatus.LAUNCHED, launch=trial.launch)
    if run.status == S.FAILED and run.submitted_at is None:
        _put_back(rows, trial.campaign, f"The cluster rejected a trial: {run.reason}")
        return
    # What it waited in the queue of the cluster costs nothing.
    ended = run.reported_at or run.ended_at or trial.launch.closed_at
    times = {"started_at": run.began_at or run.submitted_at or ended, "finished_at": ended}
    steps = tuple(run.measured_steps_s) if run.status == S.REPORTED else ()
    if steps:
        results.done(rows, trial, Outcome(steps, run.peak_memory_bytes), **times)
        return
    results.failed(rows, trial, _failure(run), **times)


def _failure(run: ArmRun) -> dict[str, Any]:
    """What its log told, else what the backend's own words tell: preempted, over its time limit, gone."""
    reason = run.reason or "It reported no step time after warm-up."
    said = results.read(Outcome(log=reason, reason=reason))
    told = run.analysis or said
    if told["cause"] != "unknown" or said["cause"] != "unknown":
        return told if told["cause"] != "unknown" else said
    return told if told is said else told | {"sentence": f"{reason} {told['sentence']}"}


def _put_back(rows: results.Rows, campaign: Campaign, reason: str) -> None:
    """The trial waits, and its campaign is paused: every other trial would fare the same."""
    with transaction.atomic():
        paused = {"status": CampaignStatus.PAUSED, "reason": clean(reason)}
        Campaign.objects.filter(pk=campaign.pk, status=CampaignStatus.RUNNING).update(**paused)
        rows.update(status=TrialStatus.PAUSED, worker="")
        waiting = Trial.objects.filter(campaign=campaign, status=TrialStatus.WAITING)
        waiting.update(status=TrialStatus.PAUSED)
