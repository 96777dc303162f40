"""What pricing a run needs, read once per process: profile, diagnosis, and the proposer's bench over them.

Reading a large profile and diagnosing it takes seconds; a mesh that somebody types is to be priced at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from experiments.lru_cache import LruCache
from experiments.models import Run
from experiments.services import configuration, profiles
from experiments.step_profile import StepProfile
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.models import PlanRecord
from proposals.proposer import Pricer
from proposals.services import confidence, precedents

T = TypeVar("T")

#: Runs and plans kept in a process.
KEPT = 4


@dataclass(frozen=True)
class RunContext:
    """A run as the proposer takes it."""

    profile: StepProfile
    config: ExperimentConfig
    diagnosis: Diagnosis


_runs, _pricers = LruCache(KEPT), LruCache(KEPT)


def of_run(run: Run, config: dict[str, Any] | None) -> RunContext:
    """The run's profile and diagnosis under `config`, the configuration's JSON.

    Raises NotIngested where the profile's data is gone, ConfigError where the configuration passes its checks no more.
    """
    # A database that was restored gives numbers, and with them paths, away again.
    key = (run.profile.data, run.created_at, json.dumps(config))
    return _runs.get(key, lambda: _read(run, config))


def _read(run: Run, config: dict[str, Any] | None) -> RunContext:
    checked = configuration.check(config or {}).config
    if checked is None:
        raise ConfigError("", "The stored configuration is no longer valid; open it and save it again.")
    profile = profiles.load(run.profile)
    return RunContext(profile, checked, diagnose(profile, checked))


def of_plan(plan: PlanRecord) -> RunContext:
    """The plan's run under the configuration that the plan was made for."""
    return of_run(plan.run, plan.priced_with)


def pricer(plan: PlanRecord) -> Pricer:
    """The bench on which a plan was made: the same run, configuration and precedents, and what was measured since.

    Raises as `of_run`.
    """

    def make() -> Pricer:
        context = of_plan(plan)
        known = precedents.of_keys(plan.team_id, plan.precedents)
        return Pricer(context.profile, context.config, context.diagnosis, known.values, learnt)

    learnt = confidence.of_team(plan.team_id)
    return _pricers.get((plan.pk, plan.created_at, plan.run.profile.data, learnt), make)
