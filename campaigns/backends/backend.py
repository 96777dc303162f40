"""What a campaign asks of whoever runs its trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Protocol

from experiments.sentences import Sentence
from perfmodel.config import ExperimentConfig
from proposals.failures import Failure, read_failure

#: Whether the trial is to end now: the campaign was cancelled, or another worker has it.
Stop = Callable[[], bool]


class Stopped(Exception):
    """The trial was ended before it had a result."""


@dataclass(frozen=True)
class Outcome:
    """What a trial came to.

    step_times_s: of the measured steps after warm-up, empty where it failed.  peak_bytes: most memory on a chip, None
    where not measured.  log: the end of what the program wrote, from which the cause of a failure is read; reason: a
    sentence that stands where it tells none.  duty_cycle: None without a profile.  predicted: whether the times are the
    performance model's and nothing ran.
    """

    step_times_s: tuple[float, ...] = ()
    peak_bytes: float | None = None
    log: str = ""
    duty_cycle: float | None = None
    predicted: bool = False
    reason: str = ""

    def failure(self, config: ExperimentConfig | None) -> Failure:
        """The cause of a trial that failed.  config: its own, for what must not be tried again."""
        failure = read_failure(BytesIO(self.log.encode("utf-8", "replace")), config)
        return (
            replace(failure, sentence=Sentence(self.reason)) if self.reason and failure.cause == "unknown" else failure
        )


class Backend(Protocol):
    """Runs one configuration to its end.  Raises Stopped."""

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome: ...
