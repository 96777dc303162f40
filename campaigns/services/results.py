"""What a trial came to, stored once: with its measurement or with the cause of its failure.

rows: the trial while whoever stores has it; nothing changes once it is lost.
"""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone

from campaigns.backends import Outcome
from campaigns.engine.pool import MOST_ATTEMPTS
from campaigns.models import Trial, TrialStatus
from campaigns.services import spaces
from campaigns.services.queues import TRIALS
from experiments.services import secrets
from formatting.text import clean
from perfmodel.config import ExperimentConfig
from perfmodel.roofline import mfu

Rows = QuerySet[Trial]


def done(rows: Rows, trial: Trial, outcome: Outcome, **times: datetime | None) -> None:
    """times: `started_at` and `finished_at` where they are not those of the worker."""
    step = median(outcome.step_times_s)
    ended: dict[str, Any] = {"finished_at": timezone.now()} | times
    rows.update(
        status=TrialStatus.DONE,
        step_time_s=step,
        step_times_s=list(outcome.step_times_s)[:1000],
        peak_bytes=outcome.peak_bytes,
        mfu=_mfu(trial, step),
        duty_cycle=outcome.duty_cycle,
        modelled=outcome.predicted,
        runs=trial.runs + 1,
        ran_s=F("ran_s") + _took_s(trial, ended),
        **ended,
    )


def failed(rows: Rows, trial: Trial, failure: dict[str, Any], **more: Any) -> None:
    """A failure that was not the configuration's is tried again at once, as often as `MOST_ATTEMPTS` allows.

    failure: as `read` gives it.  more: further columns of a trial that has ended.
    """
    ended = {"finished_at": timezone.now()} | more
    counted = {"failure": failure, "runs": trial.runs + 1, "ran_s": F("ran_s") + _took_s(trial, ended)}
    if failure["verdict"] == "retry" and failure["cause"] != "unknown" and trial.runs + 1 < MOST_ATTEMPTS:
        if rows.update(status=TrialStatus.WAITING, worker="", heartbeat_at=None, **counted):
            TRIALS.enqueue(trial.pk)
        return
    rows.update(status=TrialStatus.FAILED, **counted, **ended)


def read(outcome: Outcome, config: ExperimentConfig | None = None) -> dict[str, Any]:
    """The cause of a failure as the API shows it; `spaces.failure_of` reads from it what the failure forbids."""
    written = outcome.failure(config).to_json()
    written["line"], written["last"] = clean(written["line"]), [clean(line) for line in written["last"]]
    return written | {"sentence": secrets.redact(clean(written["sentence"]))}


def unread(sentence: str) -> dict[str, Any]:
    """A failure that says itself why."""
    return read(Outcome(reason=sentence))


def _took_s(trial: Trial, ended: dict[str, Any]) -> float:
    """Seconds of the run that has ended."""
    begun = ended.get("started_at") or trial.started_at
    return max(0.0, (ended["finished_at"] - begun).total_seconds()) if begun and ended["finished_at"] else 0.0


def _mfu(trial: Trial, step_s: float) -> float | None:
    """None on devices whose peak is not that of the configured chip."""
    if trial.campaign.on_other_devices:
        return None
    field = spaces.space_of(trial.campaign)
    row = field.by_key.get(trial.key)
    if row is None:
        return None
    config = field.candidates.configs[row]
    return mfu(config, step_s, config.training.precision)
