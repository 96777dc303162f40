"""Runs of a sweep as the Proposer sees them: from one that ran, the others are candidates with prices.

The start is known by its step time, and by its peak memory where one was published; nothing else of it is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from evaluation.sweep_groups import Group
from evaluation.time_rows import TimeRow
from evaluation.time_table import table_without
from history.case import Case
from perfmodel import legality, memory
from perfmodel.calibration import SPREAD_PER_DOUBLING, Prices
from perfmodel.confidence import shipped
from perfmodel.config import Training
from perfmodel.efficiency import EfficiencyTable
from perfmodel.legality import MemoryPosterior, MemoryRun, memory_posterior
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from proposals.proposer.changes import Change
from proposals.proposer.precedents import Library
from proposals.proposer.prices import Ranked, Weights, rank, steps
from proposals.proposer.space import Candidates

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: Seconds per step of a group's runs, by a model that has not seen its workload.
Price = Callable[[Group], Floats]

#: Training keys that differ within a sweep.
KEYS = ("global_batch", "micro_batch", "remat", "weight_sharding")
#: No precedent is asked: records of the same sweeps may hold the answer.
NOTHING_LIKE_IT = Library((), Case())


@dataclass(frozen=True)
class Sweep:
    """A group of runs with predicted seconds per step of every run.

    with_peak: whether the baseline's peak memory is given, if published.
    """

    group: Group
    predicted_s: Floats
    with_peak: bool = True

    @cached_property
    def _columns(self) -> tuple[tuple[str, str], ...]:
        names = dict.fromkeys(axis for config in self.group.configs for axis, _ in config.mesh.ici)
        return tuple(("ici", name) for name in names)

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64]:
        rows = [[dict(config.mesh.ici).get(axis, 1) for _, axis in self._columns] for config in self.group.configs]
        return np.array(rows, dtype=np.int64)

    @cached_property
    def legal(self) -> Bools:
        """Which runs the rules of legality and memory would let be proposed."""
        work = self.group.work
        broken = legality.of_workload(work, self.group.configs[0].model)
        broken.pop("topology", None)  # these runs took place where they were laid
        out = reduce(np.logical_or, broken.values(), ~memory.per_chip(work).fits)
        return np.array(~np.broadcast_to(out, len(self.group)))

    def candidates(self, start: int) -> Candidates:
        """All runs, with the baseline as the current configuration."""
        count, config = len(self.group), self.group.configs[start]
        everywhere = np.arange(count)
        return Candidates(
            config=config,
            meshes=tuple(each.mesh for each in self.group.configs),
            columns=self._columns,
            sizes=self._sizes,
            changes=tuple(_change(config.training, each.training) for each in self.group.configs),
            mesh_of=everywhere,
            change_of=everywhere,
            baseline=start,
            work=self.group.work,
            shape=(count,),
            at=everywhere,
            posterior=self._posterior(start),
        )

    def gains(self, start: int) -> Floats:
        """Predicted log gain per token of every run.

        The start's measured time is one factor on all predictions, so it drops out of what they gain.
        """
        per_token = np.log(self.predicted_s / self.group.tokens)
        return np.asarray(per_token[start] - per_token)

    def ranked(
        self, start: int, weights: Weights | None = None, library: Library = NOTHING_LIKE_IT
    ) -> tuple[Candidates, Ranked]:
        """Those that are legal, ranked.  library: precedents."""
        legal = self.legal.copy()
        legal[start] = True
        rows = np.flatnonzero(legal)
        c = self.candidates(start).take(rows)
        gain = self.gains(start)[rows]
        sigma = SPREAD_PER_DOUBLING * np.sqrt(steps(c))
        time_s = self.group.time_s[start] * c.tokens_ratio / np.exp(gain)
        prices = Prices(
            step_time_s=time_s,
            sigma=sigma,
            spread=shipped().range_sigma(sigma),
            speedup=np.exp(gain),
            parts_s={},
            at_peak_s=np.zeros(len(c)),
        )
        return c, rank(c, prices, library, shipped(), weights)

    def _posterior(self, start: int) -> MemoryPosterior:
        """Return the memory posterior from the start: it ran, and its peak where published."""
        used = memory.per_chip(self.group.work)
        flat = {part.name: np.broadcast_to(getattr(used, part.name), len(self.group)) for part in fields(used)}
        own = memory.MemoryUse(**{name: values[start : start + 1] for name, values in flat.items()})
        peak = float(self.group.peak_bytes[start])
        return memory_posterior([MemoryRun(own, peak if self.with_peak and np.isfinite(peak) else None)])


def unseen_s(group: Group) -> Floats:
    """By efficiencies fitted without the workload, and without the others of its fold."""
    run = group.runs[group.starts[0]]
    assert run.step_time_s is not None
    row = TimeRow(run.id, run.source, run.workload, run.config, run.step_time_s)
    return _estimated_s(group, table_without(row))


def _estimated_s(group: Group, table: EfficiencyTable) -> Floats:
    priced = combine(step_terms(group.work), table.for_config(group.configs[0], "workload"))
    return np.array(np.broadcast_to(priced.estimate_s, len(group)))


def _change(ran: Training, other: Training) -> Change:
    """The training keys in which a run differs from the one to start from."""
    return {key: getattr(other, key) for key in KEYS if getattr(other, key) != getattr(ran, key)}
