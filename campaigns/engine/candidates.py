"""Candidates of a campaign: configurations side by side, with what the performance model says of each.

Each has a predicted time per token, how far the model may be off, how full the memory would be, and the physical
quantities by which a measured candidate tells of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel import legality, memory
from perfmodel.arrays import concatenated, mapped
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.legality import MemoryPosterior
from perfmodel.memory import MemoryUse
from perfmodel.price import NOTHING, Evidence
from perfmodel.step_time import Z80, combine, error_range
from perfmodel.terms import step_terms
from perfmodel.workload import Workload

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Parts of the step whose speed is an unknown that all candidates of a workload share.
PARTS = ("compute", "hbm", "tensor", "weights", "pipeline", "overhead")
_OF_PART = {
    "compute": "compute", "hbm": "hbm", "ici:model": "tensor", "ici:seq": "tensor", "ici:expert": "tensor",
    "ici:weights": "weights", "ici:expert_weights": "weights", "ici:replica": "weights", "dcn": "weights",
    "ici:pipeline": "pipeline", "bubble": "pipeline", "overhead": "overhead",
}  # fmt: skip
#: What a calibrated price is off by at least: steps of one configuration differ by as much from run to run.
LEAST_SIGMA = 0.02
#: How far apart two policies are, in doublings of an axis.
POLICY_STEP = 2.0


@dataclass(frozen=True)
class TrialCandidates:
    """Arrays over candidates.

    tokens: per step.  time_s: predicted seconds per step where nothing stalls; stalled_s: where it does, and
    stall_chance how likely that is.  sigma: standard deviation of log(measured / predicted).  shares: (n, PARTS) of the
    predicted step; settings: (n, …) sizes and policies on a scale of doublings.  used: memory as computed; known:
    what the run before the campaign tells of it.  legal: keeps all rules but that of memory.
    """

    configs: Sequence[ExperimentConfig]
    tokens: Floats
    time_s: Floats
    stalled_s: Floats
    stall_chance: Floats
    sigma: Floats
    shares: Floats
    settings: Floats
    used: MemoryUse
    known: MemoryPosterior
    legal: Bools

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def log_s(self) -> Floats:
        """Log of predicted seconds per token where nothing stalls."""
        return np.asarray(np.log(self.time_s / self.tokens))

    @cached_property
    def log_stalled_s(self) -> Floats:
        return np.asarray(np.log(self.stalled_s / self.tokens))

    @cached_property
    def peak_bytes(self) -> Floats:
        """Predicted memory per chip."""
        return self.known.corrected(self.used).total

    @cached_property
    def fill(self) -> Floats:
        """Log of the memory that the program cannot do without over the capacity."""
        return np.asarray(np.log(self.known.corrected(self.used).needed / self.used.capacity))

    def memory_of(self, row: int) -> MemoryUse:
        """Return the memory of one candidate as computed, arrays of one entry."""
        used: MemoryUse = mapped(lambda array: array[[row]], self.used)
        return used

    @cached_property
    def known_covered(self) -> dict[object, Bools]:
        """What failures forbid, worked out once each (`strategy.covered`)."""
        return {}

    def take(self, rows: npt.NDArray[np.integer]) -> TrialCandidates:
        """The candidates at these indices."""
        arrays: dict[str, Any] = {name: mapped(lambda array: array[rows], getattr(self, name)) for name in _ARRAYS}
        return replace(self, configs=tuple(self.configs[int(i)] for i in rows), **arrays)

    def in_units_of(self, row: int, step_time_s: float) -> TrialCandidates:
        """Predicted times as of a machine on which this candidate takes so long: trials may run on other devices than
        those that were configured."""
        ratio = step_time_s / float(self.time_s[row])
        return replace(self, time_s=self.time_s * ratio, stalled_s=self.stalled_s * ratio)

    def with_(self, more: TrialCandidates) -> TrialCandidates:
        """These, then others."""
        arrays: dict[str, Any] = {name: concatenated(getattr(self, name), getattr(more, name)) for name in _ARRAYS}
        return replace(self, configs=(*self.configs, *more.configs), **arrays)


_ARRAYS = tuple(part.name for part in fields(TrialCandidates) if part.name not in ("configs", "known"))


def price(
    configs: Sequence[ExperimentConfig],
    work: Workload,
    evidence: Evidence = NOTHING,
    doublings: Floats | float = 0.0,
    efficiencies: Efficiencies | EfficiencyTable | None = None,
) -> TrialCandidates:
    """Price configurations of one workload under the evidence.

    work: the same as arrays along one dimension.  doublings: distance of each mesh from that of the evidence.
    efficiencies: None for the shipped table.
    """
    count = len(configs)
    table = load_efficiencies() if efficiencies is None else efficiencies
    if isinstance(table, EfficiencyTable):
        table = table.for_config(configs[0])
    terms = step_terms(work)
    priced = combine(terms, table)
    used, broken = memory.per_chip(work), legality.of_workload(work, configs[0].model)

    def flat(value: npt.ArrayLike) -> Floats:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), count))

    smooth = time_s = flat(priced.smooth_s)
    low80, high80 = error_range(terms, table)  # of held-out runs of each candidate's class (docs/accuracy.md)
    sigma = flat((high80 - low80) / (2.0 * Z80))
    if evidence.calibration is not None:
        calibrated = evidence.calibration.price_workload(work, np.asarray(doublings))
        time_s, sigma = flat(calibrated.step_time_s), np.maximum(flat(calibrated.sigma), LEAST_SIGMA)
    parts = dict.fromkeys(PARTS, np.zeros(count))
    for name, value in priced.parts_s.items():
        parts[_OF_PART[name]] = parts[_OF_PART[name]] + flat(value)
    # A stall is a mode of its own, not a part of the step that scales.
    parts["overhead"] = parts["overhead"] - flat(priced.estimate_s - priced.smooth_s)
    return TrialCandidates(
        configs=tuple(configs),
        tokens=flat(work.training.global_batch) * flat(work.training.seq_len),
        time_s=time_s,
        stalled_s=time_s + flat(priced.stall_s),
        stall_chance=flat(priced.stall_chance),
        sigma=sigma,
        shares=np.column_stack([parts[name] / smooth for name in PARTS]),
        settings=_settings(work, count),
        used=mapped(flat, used),
        known=evidence.memory,
        legal=~np.array(np.broadcast_to(reduce(np.logical_or, broken.values()), count)),
    )


def _settings(w: Workload, count: int) -> Floats:
    mesh, train = w.mesh, w.training
    shards = mesh.batch_shards
    sequences = train.global_batch / shards / train.micro_batches
    columns = [
        np.log2(mesh.model),
        np.log2(mesh.pipeline),
        np.log2(mesh.seq),
        np.log2(mesh.expert),
        np.log2(mesh.replica * mesh.dcn_replica),
        np.log2(sequences),
        np.log2(train.global_batch),
        np.log2(train.virtual_stages),
        *(POLICY_STEP * (train.sharding == policy) for policy in (0, 2)),
        *(POLICY_STEP * (train.remat == policy) for policy in (0, 1, 3)),
    ]
    return np.column_stack([np.broadcast_to(np.asarray(column, dtype=np.float64), count) for column in columns])
