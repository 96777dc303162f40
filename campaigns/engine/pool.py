"""The pool: every trial of a campaign with what came of it.  All that the agents know of the past is in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from proposals.failures import Failure

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

State = Literal["waiting", "running", "done", "failed", "cancelled"]
#: States in which a trial has not come to its end.
OPEN = ("waiting", "running")
#: How often a configuration is run whose failure was not its own.
MOST_ATTEMPTS = 2


@dataclass(frozen=True)
class Trial:
    """One configuration as it was tried.

    candidate: its index.  step_time_s: median of the measured steps, None unless it is done; peak_bytes: most memory on
    a chip, None where not measured.  failure: what the log of a failed trial says, None where there is no log.
    duty_cycle: share of the step that the chip is busy, None where no profile was taken.  runs: how often it was run.
    modelled: whether nothing ran and the numbers are the performance model's.
    """

    candidate: int
    state: State
    step_time_s: float | None = None
    peak_bytes: float | None = None
    failure: Failure | None = None
    duty_cycle: float | None = None
    runs: int = 1
    modelled: bool = False

    @property
    def origin(self) -> Literal["measured", "predicted"]:
        """Of its step time and memory."""
        return "predicted" if self.modelled else "measured"


@dataclass(frozen=True)
class Pool:
    """Trials in the order in which they were begun; the first may be the configuration before the campaign."""

    trials: Sequence[Trial] = ()

    def __len__(self) -> int:
        return len(self.trials)

    @cached_property
    def done(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state == "done" and trial.step_time_s is not None)

    @cached_property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state == "failed")

    @cached_property
    def open(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state in OPEN)

    def with_(self, *trials: Trial) -> Pool:
        return Pool((*self.trials, *trials))

    def fastest(self, tokens: Floats) -> Trial | None:
        """Return the fastest trial by time per token; None where none ran.  tokens: per step, by candidate."""
        return min(self.done, key=lambda trial: (trial.step_time_s or 0.0) / tokens[trial.candidate], default=None)
