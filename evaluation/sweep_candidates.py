"""Runs of a sweep as the Proposer sees them: from one that ran, the others are candidates with prices.

The start is known by its step time, and by its peak memory where one was published; nothing else of it is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagnosis.report import Bottleneck, Diagnosis
from evaluation.sweep_groups import Group
from experiments.step_profile import Device, Memory, StepProfile
from perfmodel import legality, memory
from perfmodel.calibration import calibrate
from perfmodel.config import ExperimentConfig, Training
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import chip_of
from proposals.proposer.changes import Change
from proposals.proposer.confidence import shipped
from proposals.proposer.confidence_pairs import observed_parts
from proposals.proposer.likeness import Library, Situation
from proposals.proposer.pricing import SPREAD_PER_DOUBLING_KNOWN, Prices
from proposals.proposer.ranking import Ranked, Weights, rank
from proposals.proposer.space import Candidates

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: Efficiencies that have not seen the workload named.
Tables = Callable[[str], EfficiencyTable]

#: Training keys that differ within a sweep.
KEYS = ("global_batch", "micro_batch", "remat", "weight_sharding")
#: No precedent is asked: records of the same sweeps may hold the answer.
NOTHING_LIKE_IT = Library((), Situation("h100", 8, "unknown", None))
#: Nothing is known of what limits a start.
UNKNOWN = Diagnosis({}, {}, Bottleneck("unknown", 0.0, "Only the step time is known."), (), ())


@dataclass(frozen=True)
class Sweep:
    """A group of runs, priced by efficiencies that have not seen its workload.

    with_peak: whether the start's peak memory is told, where it was published.
    """

    group: Group
    efficiencies: Efficiencies
    with_peak: bool = True

    @cached_property
    def predicted_s(self) -> Floats:
        """Seconds per step of every run, by the model alone."""
        priced = combine(step_terms(self.group.work), self.efficiencies)
        return np.array(np.broadcast_to(priced.estimate_s, len(self.group)))

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
        mesh, training = self.group.work.mesh, self.group.work.training
        roles = ("replica", "data", "fsdp", "seq", "model", "expert", "pipeline")
        sizes = legality.Sizes(
            **{role: getattr(mesh, role) for role in roles},
            micro_batches=training.micro_batches,
            virtual_stages=training.virtual_stages,
        )
        model = self.group.configs[0].model
        broken = legality.broken_rules(sizes, model, training.global_batch, training.seq_len)
        out = ~memory.per_chip(self.group.work).fits
        for flags in broken.values():
            out = out | flags
        return np.array(~np.broadcast_to(out, len(self.group)))

    def candidates(self, start: int) -> Candidates:
        """All runs, with the one to start from as what runs."""
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
        )

    def gains(self, start: int) -> tuple[Floats, Floats]:
        """Predicted log gain per token of every run against the start, and its spread."""
        config = self.group.configs[start]
        run = MeasuredStep(config, float(self.group.time_s[start]))
        calibration = calibrate(config, observed_parts(run, self.efficiencies), self.efficiencies)
        distance = self.candidates(start).mesh_doublings
        prices = calibration.price_workload(self.group.work, distance)
        return np.log(prices.speedup), np.hypot(prices.sigma, SPREAD_PER_DOUBLING_KNOWN * np.sqrt(distance))

    def ranked(self, start: int, weights: Weights | None = None) -> tuple[Candidates, Prices, Ranked]:
        """Those that are legal, priced and ranked."""
        legal = self.legal.copy()
        legal[start] = True
        rows = np.flatnonzero(legal)
        c = self.candidates(start).take(rows)
        gain, sigma = self._gains[start]
        prices = Prices(
            calibration=None,  # type: ignore[arg-type]
            time_s=self.group.time_s[start] * c.tokens_ratio / np.exp(gain[rows]),
            gain=gain[rows],
            sigma=np.where(rows == start, 0.0, sigma[rows]),
            parts_s={},
            memory_high_bytes=None,
            stall_s=0.0,
            seconds=True,
            confidence=shipped(),
        )
        return c, prices, rank(c, prices, self._profile(start), NOTHING_LIKE_IT, weights)

    @cached_property
    def _gains(self) -> dict[int, tuple[Floats, Floats]]:
        return {start: self.gains(start) for start in self.group.starts}

    def _profile(self, start: int) -> StepProfile:
        peak = float(self.group.peak_bytes[start])
        told = self.with_peak and np.isfinite(peak)
        return StepProfile(
            provenance="measured",
            source_kind="step time",
            device=Device("", self.group.configs[start].hardware.chip, self.group.configs[start].hardware.chips, 1),
            step_time_s=float(self.group.time_s[start]),
            memory=Memory(peak_bytes=int(peak)) if told else Memory(),
        )


@dataclass(frozen=True)
class MeasuredStep:
    """A configuration with its measured seconds per step."""

    config: ExperimentConfig
    step_time_s: float


def sweep(group: Group, tables: Tables | None = None, with_peak: bool = True) -> Sweep:
    """tables: default the shipped ones, which may have seen the workload."""
    table = tables(group.workload) if tables else load_efficiencies()
    config = group.configs[0]
    found = table.resolve(chip_of(config.hardware), config.training.precision, config.model)
    return Sweep(group, found, with_peak)


def _change(ran: Training, other: Training) -> Change:
    """The training keys in which a run differs from the one to start from."""
    return {key: getattr(other, key) for key in KEYS if getattr(other, key) != getattr(ran, key)}
