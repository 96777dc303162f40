"""Trials that nobody runs: the price of a configuration and its memory verdict.  For a look at what a campaign would
try."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.backends.backend import Outcome, Stop
from perfmodel.config import ExperimentConfig
from perfmodel.price import NOTHING, Evidence, predict


@dataclass(frozen=True)
class Modelled:
    """evidence: of the current configuration, to price by."""

    evidence: Evidence = NOTHING

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome:
        prediction = predict(config, self.evidence)
        used = prediction.hbm_per_chip_bytes or {}
        total, capacity = used.get("total"), used.get("capacity")
        if prediction.fits is False and total and capacity:
            needs = f"{total / 1e9:.1f} GB predicted of {capacity / 1e9:.1f} GB"
            return Outcome(
                log=f"RESOURCE_EXHAUSTED: Out of memory allocating {total:.0f} bytes: {needs}", predicted=True
            )
        assert prediction.step_time_s is not None  # a campaign starts only where everything is known
        return Outcome((prediction.step_time_s["estimate"],), total, predicted=True)
