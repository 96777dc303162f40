"""One trial in the hands of a worker: claimed, run by the campaign's backend, its result or failure stored, and the
next trials planned."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from campaigns.backends import Backend, Compiled, Local, Modelled, Stopped
from campaigns.models import Campaign, CampaignStatus, Trial
from campaigns.services import launched, planning, results, spaces
from campaigns.services.queues import TRIALS
from jobs import workers
from perfmodel.config import ConfigError
from proposals.services import compiling


def run(pk: int) -> None:
    """Run the trial, unless it has ended, a live worker has it, or its campaign does not run; then plan what follows.

    Where the database is away the trial is left for the sweep; our own faults end the trial and are raised again.
    """
    worker = workers.this_thread()
    known = Trial.objects.select_related("campaign__experiment")
    trial = known.filter(pk=pk).first()
    if trial is None or trial.campaign.status != CampaignStatus.RUNNING:
        return
    if not TRIALS.claim(pk, worker, started_at=timezone.now(), finished_at=None):
        return
    trial.refresh_from_db(fields=["attempts", "runs", "started_at"])
    if trial.attempts > TRIALS.most_attempts:
        results.failed(TRIALS.row_of_worker(pk, worker), trial, results.unread(f"{TRIALS.gave_up} of this trial"))
    else:
        _run(trial, worker)
    planning.plan(trial.campaign_id)


def _run(trial: Trial, worker: str) -> None:
    campaign, rows = trial.campaign, TRIALS.row_of_worker(trial.pk, worker)
    lost = {"now": False}

    def look() -> None:
        running = Campaign.objects.filter(pk=campaign.pk, status__in=(CampaignStatus.RUNNING, CampaignStatus.PAUSED))
        lost["now"] = not running.exists() or not rows.exists()

    try:
        config = spaces.config_of_trial(
            spaces.space_of(campaign).config, {"mesh": trial.mesh, "training": trial.training}
        )
        if campaign.backend == Campaign.Backend.CLUSTER:
            launched.begin(trial, worker, config)
            return
        with TRIALS.beating(trial.pk, worker, (workers.HEARTBEAT_EVERY_S, look)):
            outcome = backend_of(campaign).measure(config, lambda: lost["now"])
    except Stopped:
        return
    except ConfigError as error:
        results.failed(rows, trial, results.unread(str(error)))
        return
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        sentence = f"Internal error ({type(error).__name__}); report trial {trial.pk}."
        results.failed(rows, trial, results.unread(sentence))
        raise
    if outcome.step_times_s:
        results.done(rows, trial, outcome)
    else:
        results.failed(rows, trial, results.read(outcome, config), modelled=outcome.predicted)


def backend_of(campaign: Campaign) -> Backend:
    field = spaces.space_of(campaign)
    if campaign.backend == Campaign.Backend.LOCAL:
        return Local()
    evidence = spaces.evidence_of_campaign(campaign, field.config)
    if campaign.backend == Campaign.Backend.COMPILED:
        return Compiled(evidence, compiling.cache(), compiling.worker_module())
    return Modelled(evidence)
