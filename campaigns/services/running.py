"""One trial in the hands of a worker: claimed, run by the campaign's backend, its result or failure stored, and the
next trials planned."""

from __future__ import annotations

from io import BytesIO
from statistics import median
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from campaigns.backends import Backend, Local, Modelled, Outcome, Stopped
from campaigns.engine.pool import MOST_ATTEMPTS
from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from campaigns.services import planning, spaces
from campaigns.services.planning import TRIALS
from experiments.services.text import clean
from jobs import workers
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.failures import Failure, read_failure


def run(pk: int) -> None:
    """Run the trial, unless it has ended, a live worker has it, or its campaign does not run; then plan what follows.

    Where the database is away the trial is left for the sweep; our own faults end the trial and are raised again.
    """
    worker = workers.this_thread()
    # A landscape has as many rows as the campaign has trials, and the field of the campaign keeps it.
    known = Trial.objects.select_related("campaign__experiment").defer("campaign__landscape")
    trial = known.filter(pk=pk).first()
    if trial is None or trial.campaign.status != CampaignStatus.RUNNING:
        return
    if not TRIALS.claim(pk, worker, started_at=timezone.now()):
        return
    trial.refresh_from_db(fields=["attempts", "runs"])
    if trial.attempts > TRIALS.most_attempts:
        _failed(trial, worker, _internal(f"{TRIALS.gave_up} of this trial"))
    else:
        _run(trial, worker)
    planning.plan(trial.campaign_id)


def _run(trial: Trial, worker: str) -> None:
    campaign = trial.campaign
    lost = {"now": False}

    def look() -> None:
        running = Campaign.objects.filter(pk=campaign.pk, status__in=(CampaignStatus.RUNNING, CampaignStatus.PAUSED))
        lost["now"] = not running.exists() or not TRIALS.held(trial.pk, worker).exists()

    try:
        config = spaces.config_of_trial(
            spaces.field_of(campaign).config, {"mesh": trial.mesh, "training": trial.training}
        )
        with TRIALS.beating(trial.pk, worker, (workers.HEARTBEAT_EVERY_S, look)):
            outcome = backend_of(campaign).measure(config, lambda: lost["now"])
    except Stopped:
        return
    except ConfigError as error:
        _failed(trial, worker, _internal(str(error)))
        return
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        _failed(trial, worker, _internal(f"Internal error ({type(error).__name__}); report trial {trial.pk}."))
        raise
    if outcome.step_times_s:
        _done(trial, worker, outcome)
    else:
        _read_log(trial, worker, outcome, config)


def backend_of(campaign: Campaign) -> Backend:
    field = spaces.field_of(campaign)
    if campaign.backend == Campaign.Backend.LOCAL:
        return Local()
    if field.landscape is not None:
        return field.landscape
    return Modelled(spaces.calibration_of(campaign, field.config))


def _done(trial: Trial, worker: str, outcome: Outcome) -> None:
    step = median(outcome.step_times_s)
    TRIALS.held(trial.pk, worker).update(
        status=TrialStatus.DONE,
        step_time_s=step,
        step_times_s=list(outcome.step_times_s)[:1000],
        peak_bytes=outcome.peak_bytes,
        mfu=_mfu(trial, step),
        duty_cycle=outcome.duty_cycle,
        modelled=outcome.predicted,
        runs=trial.runs + 1,
        finished_at=timezone.now(),
    )


def _mfu(trial: Trial, step_s: float) -> float | None:
    """None on the devices of this machine, whose peak is not that of the configured chip."""
    if trial.campaign.backend == Campaign.Backend.LOCAL:
        return None
    field = spaces.field_of(trial.campaign)
    row = field.by_key.get(trial.key)
    return None if row is None else float(field.candidates.model_flops_s[row]) / step_s


def _read_log(trial: Trial, worker: str, outcome: Outcome, config: ExperimentConfig) -> None:
    """A failure that was not the configuration's is tried again at once, as often as `MOST_ATTEMPTS` allows."""
    failure = read_failure(BytesIO(outcome.log.encode("utf-8", "replace")), config)
    again = failure.verdict == "retry" and failure.cause != "unknown" and trial.runs + 1 < MOST_ATTEMPTS
    if again:
        waiting = {"status": TrialStatus.WAITING, "worker": "", "heartbeat_at": None, "runs": trial.runs + 1}
        if TRIALS.held(trial.pk, worker).update(failure=stored(failure), **waiting):
            TRIALS.enqueue(trial.pk)
        return
    _failed(trial, worker, stored(failure), outcome.predicted)


def stored(failure: Failure) -> dict[str, Any]:
    """As the API shows it, and what the pool needs to know what it forbids."""
    written = failure.to_json()
    forbidden = failure.forbidden
    written["forbids"] = (
        {"rule": forbidden.rule, "role": forbidden.role, "dimension": forbidden.dimension} if forbidden else None
    )
    written["line"], written["last"] = clean(written["line"]), [clean(line) for line in written["last"]]
    return written


def _internal(sentence: str) -> dict[str, Any]:
    failure = stored(read_failure(BytesIO(b""), None))
    return failure | {"sentence": clean(sentence)}


def _failed(trial: Trial, worker: str, failure: dict[str, Any], modelled: bool = False) -> None:
    TRIALS.held(trial.pk, worker).update(
        status=TrialStatus.FAILED,
        failure=failure,
        modelled=modelled,
        runs=trial.runs + 1,
        finished_at=timezone.now(),
    )
