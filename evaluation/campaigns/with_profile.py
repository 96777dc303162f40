"""What a profile of the first run is worth to a campaign: on simulated worlds whose whole landscape is known.

The worlds are those of docs/accuracy-calibration.md; recorded sweeps come without profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from campaigns.engine.candidates import TrialCandidates, price
from evaluation.calibration_report import Trial
from evaluation.campaigns.ours import run
from evaluation.campaigns.recorded import Recorded, trajectory
from evaluation.landscapes import configured, scenarios
from perfmodel.observation import Observation
from perfmodel.price import Evidence

#: Trials of a campaign here.
BUDGET = 8
METHODS = ("with the profile", "with its step time alone", "model alone")


@cache
def regrets() -> Mapping[str, np.ndarray]:
    """By method, (scenarios, trials): regret of the best so far after each trial, the baseline counted."""
    by_method: dict[str, list[np.ndarray]] = {method: [] for method in METHODS}
    for scenario in scenarios():
        trial = Trial(scenario)
        configs = (scenario.config, *(configured(scenario.config, mesh, change) for mesh, change in scenario.landscape))
        plain = price(configs, trial.candidates.work)
        times = np.array([scenario.baseline_s, *scenario.times_s])
        landscape = Recorded(scenario.name, "optico", plain, times, np.full(len(times), np.nan), (None,) * len(times))
        if landscape.regret[0] <= 0.02:
            continue
        distance = trial.distance.reshape(-1)
        step = Evidence(scenario.config, Observation(scenario.baseline_s, {}))
        profile = Evidence(scenario.config, trial.observation)
        seen: dict[str, TrialCandidates] = {
            "with the profile": price(configs, trial.candidates.work, profile, distance),
            "with its step time alone": price(configs, trial.candidates.work, step, distance),
            "model alone": plain,
        }
        for method, candidates in seen.items():
            tried = run(landscape, 0, candidates=candidates, budget=BUDGET).tried
            by_method[method].append(trajectory(landscape, 0, tried, BUDGET))
    return {method: np.array(rows) for method, rows in by_method.items()}
