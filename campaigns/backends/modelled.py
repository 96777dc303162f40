"""Trials that nobody runs: the performance model's estimate, and its verdict on memory.  For a look at what a campaign
would try."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.backends.backend import Outcome, Stop
from perfmodel.calibration import Calibration
from perfmodel.config import ExperimentConfig
from perfmodel.step_time import predict


@dataclass(frozen=True)
class Modelled:
    """calibration: of the current configuration; None to price by the shipped efficiencies."""

    calibration: Calibration | None = None

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome:
        prediction = predict(config)
        used = prediction.hbm_per_chip_bytes or {}
        total, capacity = used.get("total"), used.get("capacity")
        if prediction.fits is False and total and capacity:
            needs = f"{total / 1e9:.1f} GB predicted of {capacity / 1e9:.1f} GB"
            return Outcome(
                log=f"RESOURCE_EXHAUSTED: Out of memory allocating {total:.0f} bytes: {needs}", predicted=True
            )
        return Outcome((step_time_s(config, self.calibration),), total, predicted=True)


def step_time_s(config: ExperimentConfig, calibration: Calibration | None) -> float:
    """Predicted seconds of a step, whether it fits or not."""
    if calibration is not None:
        return float(calibration.price([config]).step_time_s[0])
    prediction = predict(config)
    assert prediction.step_time_s is not None  # a campaign starts only where everything is known
    return prediction.step_time_s["estimate"]
