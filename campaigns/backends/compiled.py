"""Trials that are compiled for their topology and run on nothing: the compiler says whether the step can be built and
what memory it takes, the performance model how long it would take."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.backends.backend import Outcome, Stop, Stopped
from perfmodel.config import ExperimentConfig
from perfmodel.price import NOTHING, Evidence, predict
from proposals.compiling import engine
from proposals.compiling.cache import Cache
from proposals.compiling.result import CompileCheck


@dataclass(frozen=True)
class Compiled:
    """evidence: of the current configuration, to price by.  cache, worker: of the compile check (`engine.check`)."""

    evidence: Evidence = NOTHING
    cache: Cache | None = None
    worker: str = engine.WORKER

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome:
        def look(effort: str, stage: str) -> None:
            if stop():
                raise Stopped

        check = engine.check(config, cache=self.cache, on_progress=look, worker=self.worker)
        if check.outcome != "fits":
            return Outcome(log=log_of(check), reason=check.message, predicted=True)
        step = predict(config, self.evidence).step_time_s
        assert step is not None  # a campaign starts only where everything is known
        return Outcome((step["estimate"],), check.peak_bytes, predicted=True)


def log_of(check: CompileCheck) -> str:
    """What a program would write that ended so.  Of a compiler that died or took too long nothing is read: the words
    are ours, and say nothing of the configuration."""
    if check.outcome == "out_of_memory":
        sizes = check.message
        if check.needed_bytes and check.capacity_bytes:
            sizes = f"Used {check.needed_bytes:.0f}B of {check.capacity_bytes:.0f}B hbm."
        return f"RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. {sizes}"
    return check.message if check.outcome == "invalid" else ""
