"""Groups of measured runs that are alternatives of one another: the same model, chips, sequence length and precision.

What a proposal may choose between on a sweep: meshes, micro-batches, weight sharding and recomputation that were tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from evaluation.sweeps import SweepRun, load_sweeps
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import run_keys
from perfmodel.workload import Workload, from_config, stack

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: Runs that a choice takes: one to start from and two to choose between.
LEAST_RUNS = 3


@dataclass(frozen=True)
class Group:
    """Runs of one workload that compare, failed ones included.

    workload: as its source names it, left out together in a fold.  One run per configuration.
    """

    workload: str
    source: str
    runs: tuple[SweepRun, ...]

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def configs(self) -> tuple[ExperimentConfig, ...]:
        return tuple(run.config for run in self.runs)

    @cached_property
    def ran(self) -> Bools:
        return np.array([run.status == "ran" for run in self.runs])

    @cached_property
    def time_s(self) -> Floats:
        """Measured seconds per step; nan where it failed."""
        return np.array([run.step_time_s if run.status == "ran" else np.nan for run in self.runs], dtype=np.float64)

    @cached_property
    def tokens(self) -> Floats:
        """Tokens per step."""
        return np.array([(c.training.global_batch or 0) * (c.training.seq_len or 0) for c in self.configs], dtype=float)

    @cached_property
    def per_token(self) -> Floats:
        """Measured seconds per token, all chips together; nan where it failed."""
        return np.asarray(self.time_s / self.tokens)

    @cached_property
    def peak_bytes(self) -> Floats:
        """Published peak of memory; nan where none is."""
        return np.array([np.nan if run.peak_bytes is None else run.peak_bytes for run in self.runs], dtype=np.float64)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Every run that ran, and whose figures do not contradict each other."""
        return tuple(i for i, run in enumerate(self.runs) if run.usable)

    @cached_property
    def best(self) -> float:
        """The shortest measured time per token."""
        return float(np.nanmin(self.per_token))

    @cached_property
    def work(self) -> Workload:
        return stack([from_config(config) for config in self.configs])


@cache
def groups(source: str | None = None) -> tuple[Group, ...]:
    """All groups with enough runs to choose from; rows whose outcome or figures are unclear are left out."""
    by_workload: dict[tuple[object, ...], list[SweepRun]] = defaultdict(list)
    for run in load_sweeps(source):
        if run.usable or run.status == "failed":
            config = run.config
            hardware, training = config.hardware, config.training
            key = (run.source, run.workload, config.model, hardware.chip, hardware.chips)
            by_workload[*key, training.seq_len, training.precision].append(run)
    result = []
    for (origin, workload, *_), runs in by_workload.items():
        kept = _distinct(runs)
        if len(kept) >= LEAST_RUNS and sum(run.usable for run in kept) > 1:
            result.append(Group(str(workload), str(origin), kept))
    return tuple(result)


def _distinct(runs: Sequence[SweepRun]) -> tuple[SweepRun, ...]:
    """One run per configuration: the median of its times where it ran more than once; failed only where every attempt
    did, since a failure that did not come again was none of the configuration's.

    In an order by hash: the files list the fastest first, which ties must not tell.
    """
    alike: dict[str, list[SweepRun]] = defaultdict(list)
    for run in runs:
        alike[run_keys(run.config)["configuration"]].append(run)
    fastest = []
    for attempts in alike.values():
        ran = sorted((run for run in attempts if run.usable), key=lambda run: run.step_time_s or 0.0)
        fastest.append(ran[(len(ran) - 1) // 2] if ran else attempts[0])
    return tuple(sorted(fastest, key=lambda run: sha256(run.id.encode()).hexdigest()))
