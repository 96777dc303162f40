"""The proposer's inputs without a profile: a measured step time, or nothing measured, in the place of a profile.

What a profile would have measured is the performance model's, scaled to the step, and carries that it is predicted
(`Observed.basis`).  Nothing here prices: the calibration takes the step time as its only evidence.
"""

from __future__ import annotations

import numpy as np

from diagnosis.report import Diagnosis
from experiments.step_profile import MODEL, PROFILE, STEP_TIME, StepProfile
from experiments.without_profile import without_profile
from perfmodel.calibration import Calibration, calibrate
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.from_baseline import lacking
from perfmodel.observation import Observation
from perfmodel.priced import Z80
from perfmodel.step_time import missing_facts, predict
from proposals.proposer.observed import TRAFFIC, WORK, Observed

#: Kind of traffic (`observed.TRAFFIC`) of each group of axes (`workload.GROUPS`).
_TRAFFIC_OF = {
    "weights": "weights",
    "expert_weights": "weights",
    "replica": "weights",
    "model": "tensor",
    "seq": "sequence",
    "expert": "expert",
    "pipeline": "pipeline",
}
NOTES = {
    STEP_TIME: (
        "No profile: only the step time was measured. The breakdown is predicted and scaled to it; upload a profile "
        "to calibrate each part."
    ),
    MODEL: (
        "Nothing was measured: every number is a prediction. Provide measured.step_time_s or a profile to calibrate it."
    ),
}


def start(config: ExperimentConfig) -> StepProfile:
    """Replacement for a profile.  Raises ConfigError where the configuration says too little to price."""
    profile = without_profile(config)
    refuse(profile, config)
    return profile


def refuse(profile: StepProfile, config: ExperimentConfig) -> None:
    """Raise ConfigError where nothing can be proposed without a profile, with what is missing or contradictory."""
    if profile.basis == MODEL:
        for name in missing_facts(config):
            raise ConfigError(name, "is missing; it is required where there is no profile")
    elif profile.basis == STEP_TIME:
        for name, sentence in lacking(config).items():
            raise ConfigError(name, sentence)


def calibration(config: ExperimentConfig, profile: StepProfile) -> Calibration:
    """The calibration by the step time alone, measured or, where nothing was, predicted."""
    return calibrate(config, Observation(_step_s(config, profile), {}, memory_bytes=profile.memory.peak_bytes))


def observe(profile: StepProfile, config: ExperimentConfig, diagnosis: Diagnosis) -> Observed:
    """The predicted parts of the step, by what they scale with.  Raises ConfigError as `refuse`."""
    refuse(profile, config)
    prices = calibration(config, profile).price([config])
    work, traffic, fixed = dict.fromkeys(WORK, 0.0), dict.fromkeys(TRAFFIC, 0.0), 0.0
    for name, values in prices.parts_s.items():
        seconds = float(np.broadcast_to(values, prices.step_time_s.shape)[0])
        kind, _, group = name.partition(":")
        if kind == "compute":
            work["products"] += seconds
        elif kind == "hbm":
            work["activations_hbm"] += seconds
        elif kind == "dcn":
            traffic["dcn"] += seconds
        elif kind == "ici":
            traffic[_TRAFFIC_OF.get(group, "unplaced")] += seconds
        else:
            fixed += seconds
    return Observed(
        step_s=float(prices.step_time_s[0]),
        work_s=work,
        traffic_s=traffic,
        fixed_s=fixed,
        flops=None,
        coverage=0.0,
        basis=profile.basis,
    )


def spread_of_baseline(profile: StepProfile, config: ExperimentConfig) -> float:
    """Standard deviation of the logarithm of the baseline's own step time: 0 where it was measured."""
    if profile.basis in (PROFILE, STEP_TIME):
        return 0.0
    step = predict(config).step_time_s
    assert step is not None
    return float(max(np.log(step["estimate"] / step["low80"]), np.log(step["high80"] / step["estimate"])) / Z80)


def _step_s(config: ExperimentConfig, profile: StepProfile) -> float:
    if profile.step_time_s is not None:
        return profile.step_time_s
    step = predict(config).step_time_s
    assert step is not None
    return step["estimate"]
