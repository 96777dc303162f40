"""Recorded landscapes: workloads of which many configurations were run, so that a campaign can be played again on them.

The performance model that a campaign uses here has not seen the landscape: its efficiencies are fitted without the
workload and the others of its fold (an eighth of all), and so is the division of its residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from io import BytesIO

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.pool import Trial
from evaluation.campaigns.landscape import listed
from evaluation.optico import tuned_runs
from evaluation.sweep_groups import Group, groups
from evaluation.time_rows import TimeRow
from evaluation.time_table import table_without
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import load_efficiencies, run_keys
from perfmodel.workload import REMAT, SHARDING
from proposals.failures import Failure, read_failure

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: Layouts that ran from which a landscape is worth a campaign.
LEAST_RAN = 5
SEEDS = 20
#: A configuration within so much of the fastest is as good as it.
AS_GOOD = 1.02
#: What OptiCo's table says of a run that failed.
_NO_MEMORY = b"torch.cuda.OutOfMemoryError: CUDA out of memory."


@dataclass(frozen=True, eq=False)
class Recorded:
    """A landscape.

    time_s: measured seconds per step, nan where it failed; peak_bytes: nan where not published; failures: what the log
    said, None where nothing was published.  elsewhere: the times are not those of the chip that is configured, so that
    a campaign predicts in units of its baseline.
    """

    name: str
    source: str
    candidates: TrialCandidates
    time_s: Floats
    peak_bytes: Floats
    failures: tuple[Failure | None, ...]
    elsewhere: bool = False

    def __len__(self) -> int:
        return len(self.time_s)

    def seen_from(self, start: int) -> TrialCandidates:
        """The candidates as a campaign prices them that begins with one of them."""
        c = self.candidates
        return c.in_units_of(start, float(self.time_s[start])) if self.elsewhere else c

    @cached_property
    def per_token(self) -> Floats:
        return np.asarray(self.time_s / self.candidates.tokens)

    @cached_property
    def best(self) -> float:
        return float(np.nanmin(self.per_token))

    @cached_property
    def regret(self) -> Floats:
        """Time per token over the fastest, less 1; nan where it failed."""
        return np.asarray(self.per_token / self.best - 1.0)

    def outcome(self, candidate: int) -> Trial:
        """The trial that trying a candidate comes to."""
        if np.isnan(self.time_s[candidate]):
            return Trial(candidate, "failed", failure=self.failures[candidate])
        peak = float(self.peak_bytes[candidate])
        return Trial(candidate, "done", float(self.time_s[candidate]), None if np.isnan(peak) else peak)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The baseline of the campaign, by seed: any layout that ran and that is not as good as the fastest."""
        rows = np.flatnonzero(self.regret > AS_GOOD - 1.0)
        rows = rows if len(rows) else np.flatnonzero(np.isfinite(self.regret))
        draw = np.random.default_rng(int(sha256(self.name.encode()).hexdigest()[:8], 16))
        return tuple(int(i) for i in draw.choice(rows, SEEDS))

    @cached_property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """What differs between the layouts, as whole numbers: doublings of sizes, places of policies.  The axis that
        follows from the others is left out."""
        configs = self.candidates.configs
        axes = dict.fromkeys(axis for config in configs for axis, _ in config.mesh.ici)
        columns = {
            axis: [dict(c.mesh.ici).get(axis, 1) for c in configs] for axis in axes if axis not in ("data", "fsdp")
        }
        columns["micro_batch"] = [c.training.micro_batch or c.training.grad_accum for c in configs]
        columns["global_batch"] = [c.training.global_batch or 1 for c in configs]
        found = {name: tuple(round(float(np.log2(value))) for value in values) for name, values in columns.items()}
        found["weight_sharding"] = tuple(SHARDING.index(c.training.weight_sharding) for c in configs)
        found["remat"] = tuple(REMAT.index(c.training.remat) for c in configs)
        return {name: values for name, values in found.items() if len(set(values)) > 1}


POLICIES = ("weight_sharding", "remat")


@cache
def of_sweeps() -> tuple[Recorded, ...]:
    """The workloads of the measured sweeps with enough layouts that ran."""
    return tuple(_of_group(group) for group in groups() if len(group.starts) >= LEAST_RAN)


def _of_group(group: Group) -> Recorded:
    run = group.runs[group.starts[0]]
    assert run.step_time_s is not None
    table = table_without(TimeRow(run.id, run.source, run.workload, run.config, run.step_time_s))
    c = listed(group.configs, table.for_config(group.configs[0], "workload"))
    return Recorded(group.workload, group.source, c, group.time_s, group.peak_bytes, (None,) * len(group))


@cache
def of_optico() -> Recorded:
    """OptiCo's Figure 5, one trial per distinct configuration.  No efficiency is fitted on it."""
    by_key = {run_keys(run.config)["configuration"]: run for run in tuned_runs()}
    runs = tuple(by_key.values())
    configs = [run.config for run in runs]
    return Recorded(
        "OptiCo Figure 5",
        "optico",
        listed(configs, load_efficiencies().for_config(configs[0], "workload")),
        np.array([run.step_time_s or np.nan for run in runs]),
        np.array([run.peak_bytes or np.nan for run in runs]),
        tuple(None if run.step_time_s else _without_memory(run.config) for run in runs),
    )


def _without_memory(config: ExperimentConfig) -> Failure:
    return read_failure(BytesIO(_NO_MEMORY), config)


def landscapes() -> tuple[Recorded, ...]:
    return (of_optico(), *of_sweeps())


def trajectory(landscape: Recorded, start: int, tried: Sequence[int], budget: int) -> Floats:
    """Regret of the best so far after each trial of the budget."""
    values = [landscape.regret[i] if np.isfinite(landscape.regret[i]) else np.inf for i in tried[:budget]]
    values += [np.inf] * (budget - len(values))
    return np.minimum(float(landscape.regret[start]), np.minimum.accumulate(np.array(values)))
