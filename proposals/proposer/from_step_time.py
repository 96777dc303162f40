"""The proposer's inputs without a profile: a measured step time, or nothing measured, in the place of a profile.

What a profile would have measured is the performance model's, scaled to the step, and carries that it is predicted
(`Observed.basis`).  Nothing here prices: the calibration takes the step time as its only evidence.
"""

from __future__ import annotations

import numpy as np

from diagnosis.report import Diagnosis
from experiments.step_profile import MODEL, STEP_TIME, StepProfile
from experiments.without_profile import without_profile
from perfmodel.confidence import Confidence, shipped
from perfmodel.config import ConfigError, ExperimentConfig, missing_facts
from perfmodel.observation import Observation
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import NOTHING, Evidence, lacking
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


def evidence(config: ExperimentConfig, profile: StepProfile, confidence: Confidence) -> Evidence:
    """Return the measured step time as evidence, or, where nothing was measured, the model's own step in its place."""
    peak = profile.memory.peak_bytes
    is_measured = profile.step_time_s is not None
    step_s = profile.step_time_s if profile.step_time_s is not None else _predicted_s(config)
    return Evidence(
        config,
        Observation(step_s, {}, memory_bytes=peak, coverage=0.0),
        "measured step time" if is_measured else NOTHING.name,
        peak,
        confidence=confidence,
        is_measured=is_measured,
    )


def _predicted_s(config: ExperimentConfig) -> float:
    step = predict_alone(config).step_time_s
    assert step is not None
    return step["estimate"]


def observe(profile: StepProfile, config: ExperimentConfig, diagnosis: Diagnosis) -> Observed:
    """The predicted parts of the step, by what they scale with.  Raises ConfigError as `refuse`."""
    refuse(profile, config)
    priced = evidence(config, profile, shipped())
    assert priced.calibration is not None
    prices = priced.calibration.price([config])
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
