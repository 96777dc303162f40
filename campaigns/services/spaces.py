"""The candidates of a campaign, made once per process: the space of its experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from campaigns.engine.candidates import TrialCandidates, price
from campaigns.engine.pool import Pool
from campaigns.engine.pool import Trial as Tried
from campaigns.engine.space import Space, searched
from campaigns.models import Campaign, TrialStatus
from experiments.lru_cache import LruCache
from experiments.models import RunStatus
from experiments.services import profiles
from perfmodel.config import ExperimentConfig, mesh_distance
from perfmodel.config_file import parse_config
from perfmodel.price import NOTHING, Evidence, baseline_of, evidence_of
from perfmodel.workload import from_config, stack
from proposals.candidate import Candidate, candidate
from proposals.constraints import Constraints
from proposals.failures import Failure
from proposals.failures.stored import FAILURE
from proposals.proposer import Pricer
from proposals.services.context import of_run

#: Campaigns kept in a process.
KEPT = 4
_fields = LruCache(KEPT)
#: Of a trial, what the engine asks for.
COLUMNS = (
    "key", "status", "step_time_s", "peak_bytes", "duty_cycle", "failure", "mesh", "training", "runs", "modelled",
)  # fmt: skip
_STATES = {TrialStatus.PAUSED: "waiting", TrialStatus.LAUNCHED: "running"}


def space_of(campaign: Campaign) -> Space:
    """Raises ConfigError where the configuration is none any more, or its measured step time is impossible."""
    # A database that was restored gives numbers away again.
    key = (campaign.pk, campaign.created_at)
    field: Space = _fields.get(key, lambda: _make(campaign))
    return field


def _make(campaign: Campaign) -> Space:
    config = parse_config(campaign.config)[0]
    rules = Constraints.from_json(campaign.constraints or {})
    return searched(config, rules, evidence_of_campaign(campaign, config))


def evidence_of_campaign(campaign: Campaign, config: ExperimentConfig) -> Evidence:
    """Return the newest profile of the experiment under the configuration that the campaign began with, else the step
    time that this gives as measured.

    Raises ConfigError for an impossible one, and for a profile that is not modelled.
    """
    if campaign.on_other_devices:
        return NOTHING  # steps of another machine say nothing of the devices here
    run = campaign.experiment.runs.filter(status=RunStatus.READY).select_related("profile").order_by("-pk").first()
    if run is not None:
        with suppress(profiles.NotIngested):
            baseline = of_run(run, campaign.config)
            return Pricer(baseline.profile, baseline.config, baseline.diagnosis).evidence
    if config.measured is not None and config.measured.step_time_s is not None:
        return baseline_of(config)
    return evidence_of(config)


def config_of_trial(config: ExperimentConfig, trial: Mapping[str, Any]) -> ExperimentConfig:
    """The configuration that a trial runs.  trial: its mesh and training."""
    changes = {key: value for key, value in trial["training"].items() if value is not None}
    return replace(candidate(config, Candidate(trial["mesh"], changes)), measured=None)


def pool_of(campaign: Campaign, field: Space) -> tuple[TrialCandidates, Pool]:
    """The trials as the engine takes them; those that the space of today does not hold are added to it."""
    rows = list(campaign.trials.order_by("number").values(*COLUMNS))
    by_key, candidates = dict(field.by_key), field.candidates
    missing = [row for row in rows if row["key"] not in by_key]
    if missing:
        candidates = _joined(campaign, field, [config_of_trial(field.config, row) for row in missing])
        by_key |= {row["key"]: len(field.candidates) + n for n, row in enumerate(missing)}
    return candidates, Pool(tuple(_tried(field, by_key[row["key"]], row) for row in rows))


def _joined(campaign: Campaign, field: Space, configs: Sequence[ExperimentConfig]) -> TrialCandidates:
    evidence = evidence_of_campaign(campaign, field.config)
    doublings = np.array([mesh_distance(field.config.mesh, config.mesh) for config in configs])
    return field.candidates.with_(price(configs, stack([from_config(one) for one in configs]), evidence, doublings))


def _tried(field: Space, row: int, stored: Mapping[str, Any]) -> Tried:
    return Tried(
        row,
        _STATES.get(stored["status"], stored["status"]),
        stored["step_time_s"],
        stored["peak_bytes"],
        failure_of(field.config, stored) if stored["failure"] else None,
        stored["duty_cycle"],
        max(1, stored["runs"]),
        stored["modelled"],
    )


def failure_of(config: ExperimentConfig, stored: Mapping[str, Any]) -> Failure:
    """What a stored failure says of other candidates."""
    settings = FAILURE.read(stored["failure"])
    return settings.of(config_of_trial(config, stored) if settings.forbidden is not None else None)
