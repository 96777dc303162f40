"""What a campaign asks of whoever runs its trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perfmodel.config import ExperimentConfig

#: Whether the trial is to end now: the campaign was cancelled, or another worker has it.
Stop = Callable[[], bool]


class Stopped(Exception):
    """The trial was ended before it had a result."""


@dataclass(frozen=True)
class Outcome:
    """What a trial came to.

    step_times_s: of the measured steps after warm-up, empty where it failed.  peak_bytes: most memory on a chip, None
    where not measured.  log: the end of what the program wrote, from which the cause of a failure is read.  duty_cycle:
    None without a profile.  predicted: whether the times are the performance model's and nothing ran.
    """

    step_times_s: tuple[float, ...] = ()
    peak_bytes: float | None = None
    log: str = ""
    duty_cycle: float | None = None
    predicted: bool = False


class Backend(Protocol):
    """Runs one configuration to its end.  Raises Stopped."""

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome: ...
