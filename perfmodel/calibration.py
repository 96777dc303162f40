"""Calibration: candidates priced as the profile's own time, rescaled by how each term changes.

What a profile measured on the baseline mesh replaces the generic efficiencies: every measured part (compute, HBM, each
collective on its axes, idle, input) is multiplied by the ratio of its modelled time on the candidate to that on the
baseline.  A ratio needs sizes and links only where the term is proportional to them, so it holds without the model's
shape; what the baseline did not have at all (an axis of size one) comes from the model, scaled to the measured compute.
The uncertainty grows with the distance from what was measured.

    calibration = calibrate(config, Observation(step_time_s=1.2, parts_s=diagnosis.breakdown_s))
    prices = calibration.price([candidate, …])
    prices.speedup[0], prices.low80_s[0], prices.high80_s[0], prices.parts_s["ici:model"][0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from scipy.special import ndtr

from perfmodel import memory
from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.gaps import fill_in
from perfmodel.observation import Observation, ObservedCollective, by_group, observed_weight_sharding
from perfmodel.step_time import Z80, Priced, combine
from perfmodel.terms import Terms, step_terms
from perfmodel.topology import Floats
from perfmodel.workload import REMAT, Workload, from_config, stack

#: Relative uncertainty (standard deviation of the logarithm) of a measured part that keeps its size, and what is added
#: per unit of |log(ratio)| it is rescaled by; of a part the baseline did not have, with the shape known and assumed;
#: per halving or doubling of an axis for what no term sees (layouts, fusions, schedules).
SPREAD_KEPT = 0.02
SPREAD_PER_LOG = 0.25
SPREAD_NEW = 0.5
SPREAD_NEW_ASSUMED = 0.9
SPREAD_PER_DOUBLING = 0.015


@dataclass(frozen=True)
class CalibratedPrices:
    """Candidates as arrays, in the order given.

    step_time_s, low80_s, high80_s: seconds (relative to a baseline of 1 where it had no step time).  speedup: measured
    baseline time per token over the candidate's; speedup_low80 and _high80 its range.  sigma: standard deviation of
    log(time).  probability_faster: that time per token falls.  parts_s: the candidate's parts by the names of the
    observation's.  memory_low_bytes and _high_bytes: between all of the peak being state and all being activations;
    None where no peak was measured.  distance: halvings and doublings of axes away from the baseline.
    """

    step_time_s: Floats
    low80_s: Floats
    high80_s: Floats
    sigma: Floats
    speedup: Floats
    speedup_low80: Floats
    speedup_high80: Floats
    probability_faster: Floats
    parts_s: Mapping[str, Floats]
    distance: Floats
    memory_low_bytes: Floats | None
    memory_high_bytes: Floats | None


@dataclass(frozen=True)
class Calibration:
    """A baseline, what was measured on it, and what had to be assumed.  Build it with `calibrate`.

    baseline: the configuration with every gap filled.  assumed: dotted names of what was filled in.  scale: measured
    over modelled compute time, or step where its parts were not measured.  group_s: measured time by group of axes
    (keys of `workload.GROUPS`), group_dcn_s: the same across slices.  efficiencies: the generic ones, for what was
    not measured.
    """

    baseline: ExperimentConfig
    observation: Observation
    assumed: tuple[str, ...]
    efficiencies: Efficiencies
    scale: float
    group_s: Mapping[str, float]
    group_dcn_s: Mapping[str, float]
    unplaced_s: float

    def price(self, candidates: Sequence[ExperimentConfig]) -> CalibratedPrices:
        """Price configurations of the same run.  What a candidate leaves open is taken from the baseline."""
        filled = [self._filled(candidate) for candidate in candidates]
        return self.price_workload(
            stack([from_config(config) for config in filled]),
            np.array([mesh_distance(self.baseline.mesh, config.mesh) for config in filled]),
        )

    def _filled(self, candidate: ExperimentConfig) -> ExperimentConfig:
        training = candidate.training
        given = {
            name: getattr(self.baseline.training, name)
            for name in ("global_batch", "seq_len")
            if getattr(training, name) is None
        }
        return replace(candidate, model=candidate.model or self.baseline.model, training=replace(training, **given))

    def price_workload(self, workload: Workload, distance: Floats) -> CalibratedPrices:
        """Price a workload of any number of candidates; distance: see CalibratedPrices."""
        base_work = from_config(self.baseline)
        base_terms, terms = step_terms(base_work), step_terms(workload)
        base, new = combine(base_terms, self.efficiencies), combine(terms, self.efficiencies)
        if not any(self.observation.parts_s.values()):
            return self._finished(*self._scaled(base, new), workload, base_work, distance)
        seen = dict(self.observation.parts_s)
        parts: dict[str, Floats] = {}
        spreads: dict[str, Floats] = {}

        def rescaled(name: str, measured: float, before: Floats, after: Floats) -> None:
            ratio = np.asarray(after) / np.maximum(before, 1e-30)
            parts[name] = measured * ratio
            spreads[name] = SPREAD_KEPT + SPREAD_PER_LOG * np.abs(np.log(np.maximum(ratio, 1e-9)))

        rescaled("compute", seen.get("compute", 0.0), base.parts_s["compute"], new.parts_s["compute"])
        rescaled("hbm", seen.get("hbm", 0.0), base.parts_s["hbm"], new.parts_s["hbm"])
        for name, before, after in (
            ("hbm:weights", base_terms.hbm_weights_s, terms.hbm_weights_s),
            ("hbm:activations", _activation_traffic(base_terms), _activation_traffic(terms)),
            ("hbm:optimizer", base_terms.hbm_optimizer_s, terms.hbm_optimizer_s),
        ):
            if seen.get(name):
                rescaled(name, seen[name], before, after)
        if "hbm:weights" in parts:
            # With fewer weights to read, the products that waited for them are bound by their own arithmetic.
            arithmetic = np.maximum(self.observation.weights_arithmetic_s, new.parts_s["compute"] - parts["compute"])
            parts["hbm:weights"] = np.maximum(parts["hbm:weights"], np.minimum(arithmetic, seen["hbm:weights"]))
        # Where a collective was hidden, a candidate hides as much of it as it has more or less work to hide it behind.
        cover = np.asarray(new.parts_s["compute"]) / np.maximum(base.parts_s["compute"], 1e-30)
        for name in terms.traffic:
            key = f"ici:{name}"
            parts[key], spreads[key] = self._communication(
                self.group_s.get(name, 0.0),
                base.resources_s[key],
                new.resources_s[key],
                base.parts_s[key] * cover,
                new.parts_s[key],
            )
        before = sum((t.dcn_s for t in base_terms.traffic.values()), np.zeros(1))
        after = sum((t.dcn_s for t in terms.traffic.values()), np.zeros(1))
        parts["dcn"], spreads["dcn"] = self._communication(
            sum(self.group_dcn_s.values()), before, after, base.parts_s["dcn"] * cover, new.parts_s["dcn"]
        )
        rescaled("ici", self.unplaced_s, _all_links(base), _all_links(new))
        batch = workload.training.global_batch / base_work.training.global_batch
        for name in ("input", "host"):
            parts[name] = seen.get(name, 0.0) * batch
            spreads[name] = np.full(1, SPREAD_KEPT)
        self._idle(parts, spreads, base_terms, terms)
        return self._finished(parts, spreads, workload, base_work, distance)

    def _scaled(self, base: Priced, new: Priced) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Parts and their spreads where only the step time is known: every modelled part, times measured over modelled
        step.  What the model does not explain of the step may as well stay as it is: half of the difference between the
        two is a spread, booked under compute."""
        parts, spreads = {}, {}
        for name, after in new.parts_s.items():
            key, before = {"bubble": "idle", "overhead": "other"}.get(name, name), base.parts_s[name]
            ratio = np.where(before > 0, after / np.maximum(before, 1e-30), 1.0)
            parts[key] = self.scale * after
            spreads[key] = np.where(
                before > 0, SPREAD_KEPT + SPREAD_PER_LOG * np.abs(np.log(np.maximum(ratio, 1e-3))), SPREAD_NEW
            )
        total = sum(parts.values(), np.zeros(1))
        kept = np.maximum(new.estimate_s + (self.scale - 1.0) * base.estimate_s, new.estimate_s)
        unexplained = 0.5 * np.abs(np.log(total / kept)) * (self.scale > 1.0)
        spreads["compute"] = np.hypot(spreads["compute"], unexplained * total / parts["compute"])
        return parts, spreads

    def _communication(
        self, measured: float, before: Floats, after: Floats, hidden_before: Floats, hidden_after: Floats
    ) -> tuple[Floats, Floats]:
        """Exposed time and its spread.  before, after: modelled time on the links; hidden_after: what the model exposes
        of the candidate; hidden_before: of what ran, behind as much work as the candidate's."""
        ratio = after / np.maximum(before, 1e-30)
        known = (before > 0) & (measured > 0)
        appears = np.maximum(0.0, hidden_after - np.where(before > 0, hidden_before, 0.0)) * self.scale
        time = np.where(known, measured * ratio, appears)
        moved = SPREAD_KEPT + SPREAD_PER_LOG * np.abs(np.log(np.maximum(np.where(known, ratio, 1.0), 1e-3)))
        fresh = SPREAD_NEW_ASSUMED if "model" in self.assumed else SPREAD_NEW
        return time, np.where(known, moved, fresh)

    def _idle(self, parts: dict[str, Floats], spreads: dict[str, Floats], base: Terms, new: Terms) -> None:
        """Idle time: the pipeline's bubble follows the schedule, the rest stays."""
        seen = self.observation.parts_s
        inside = [name for name in parts if name == "compute" or name.split(":")[0] == "hbm"]
        inside += ["ici:model", "ici:seq", "ici:expert"]
        busy_before = self.observation.work_s
        busy_before += sum(self.group_s.get(name, 0.0) for name in ("model", "seq", "expert"))
        bubble_before = float(base.bubble.reshape(-1)[0]) * busy_before
        busy = sum((parts[name] for name in inside), np.zeros(1))
        rest = max(0.0, seen.get("idle", 0.0) - bubble_before)
        parts["idle"] = rest + new.bubble * busy
        spreads["idle"] = np.full(1, 3.0 * SPREAD_KEPT)
        named = sum(seen.values())
        total = self.observation.step_time_s or named
        parts["other"] = np.full(1, seen.get("other", 0.0) + max(0.0, total - named))
        spreads["other"] = np.full(1, SPREAD_KEPT)

    def _finished(
        self,
        parts: Mapping[str, Floats],
        spreads: Mapping[str, Floats],
        workload: Workload,
        base_work: Workload,
        distance: Floats,
    ) -> CalibratedPrices:
        total = sum(parts.values(), np.zeros(1))
        variance = sum(((parts[name] * spreads[name]) ** 2 for name in parts), np.zeros(1)) / total**2
        sigma = np.sqrt(variance + SPREAD_PER_DOUBLING**2 * distance)
        sigma = np.where((distance == 0) & _same_training(workload, base_work), 0.0, sigma)
        baseline = self.observation.step_time_s or sum(self.observation.parts_s.values())
        tokens = workload.training.global_batch * workload.training.seq_len
        before = base_work.training.global_batch * base_work.training.seq_len
        speedup = baseline / total * tokens / before
        low, high = self._memory(workload, base_work)
        shape = np.broadcast_shapes(total.shape, sigma.shape)
        return CalibratedPrices(
            step_time_s=np.broadcast_to(total, shape),
            low80_s=total * np.exp(-Z80 * sigma),
            high80_s=total * np.exp(Z80 * sigma),
            sigma=sigma,
            speedup=speedup,
            speedup_low80=speedup * np.exp(-Z80 * sigma),
            speedup_high80=speedup * np.exp(Z80 * sigma),
            probability_faster=_normal(np.log(speedup) / np.maximum(sigma, 1e-9)),
            parts_s={name: np.broadcast_to(value, shape) for name, value in parts.items()},
            distance=distance,
            memory_low_bytes=low,
            memory_high_bytes=high,
        )

    def _memory(self, workload: Workload, base_work: Workload) -> tuple[Floats | None, Floats | None]:
        peak = self.observation.memory_bytes
        if peak is None:
            return None, None
        new, old = memory.per_chip(workload), memory.per_chip(base_work)
        states = (new.params + new.optimizer + new.gradients) / (old.params + old.optimizer + old.gradients)
        activations = new.activations / old.activations
        if not self.assumed:
            # The shape tells how the peak divides.
            mixed = peak * new.total / old.total
            return mixed, mixed
        return peak * np.minimum(states, activations), peak * np.maximum(states, activations)


def calibrate(
    config: ExperimentConfig,
    observation: Observation,
    efficiencies: Efficiencies | EfficiencyTable | None = None,
) -> Calibration:
    """Calibration of a run from what was measured of it.

    config: the baseline; model, batch and sequence length may be absent.  Where only the step time is known, every
    modelled part is scaled by measured over modelled step.  Raises ValueError where nothing was measured, ConfigError
    for a chip that is not known.
    """
    divided = any(value > 0 for value in observation.parts_s.values())
    if not divided and not observation.step_time_s:
        raise ValueError("the observation has no measured part, so there is nothing to calibrate with")
    table = load_efficiencies() if efficiencies is None else efficiencies
    if isinstance(table, EfficiencyTable):
        table = table.for_config(config)
    filled, assumed = fill_in(config, observation, table)
    terms = step_terms(from_config(filled))
    base = combine(terms, table)
    if not divided:
        scale = (observation.step_time_s or 0.0) / float(base.estimate_s.reshape(-1)[0])
        return Calibration(filled, observation, assumed, table, scale, {}, {}, 0.0)
    # How much slower than modelled this program's own work runs; waiting for weights says nothing about that.
    measured = observation.work_s - observation.parts_s.get("hbm:weights", 0.0)
    modelled = float((base.parts_s["compute"] + base.parts_s["hbm"]).reshape(-1)[0])
    if observation.parts_s.get("hbm:weights", 0.0) > 0.1 * observation.work_s:
        measured = modelled
    group_s, unplaced = by_group(filled.mesh, observation, base)
    dcn_total = sum(float(t.dcn_s.reshape(-1)[0]) for t in terms.traffic.values())
    across = {
        name: observation.parts_s.get("dcn", 0.0) * float(t.dcn_s.reshape(-1)[0]) / dcn_total
        for name, t in terms.traffic.items()
        if dcn_total > 0
    }
    if not across and observation.parts_s.get("dcn"):
        across = {"replica": observation.parts_s["dcn"]}
    return Calibration(
        baseline=filled,
        observation=observation,
        assumed=assumed,
        efficiencies=table,
        scale=measured / modelled if measured > 0 else 1.0,
        group_s=group_s,
        group_dcn_s=across,
        unplaced_s=unplaced,
    )


def _activation_traffic(terms: Terms) -> Floats:
    again = np.isin(terms.remat, (REMAT.index("full"), REMAT.index("offload")))
    return terms.hbm_activations_s + np.where(again, terms.hbm_recompute_s, 0.0)


def _all_links(priced: Priced) -> Floats:
    return sum((v for k, v in priced.resources_s.items() if k.startswith("ici:")), np.zeros(1))


def mesh_distance(old: Mesh, new: Mesh) -> float:
    """Halvings and doublings of axes between two meshes: half the sum, as one axis grows by what another loses."""
    before = {**{f"ici.{a}": n for a, n in old.ici}, **{f"dcn.{a}": n for a, n in old.dcn}}
    after = {**{f"ici.{a}": n for a, n in new.ici}, **{f"dcn.{a}": n for a, n in new.dcn}}
    names = before.keys() | after.keys()
    return 0.5 * sum(abs(log(after.get(name, 1) / before.get(name, 1), 2)) for name in names)


def _same_training(workload: Workload, base: Workload) -> np.ndarray:
    mine, theirs = workload.training, base.training
    same: np.ndarray = (
        (mine.global_batch == theirs.global_batch)
        & (mine.seq_len == theirs.seq_len)
        & (mine.micro_batches == theirs.micro_batches)
        & (mine.remat == theirs.remat)
        & (mine.sharding == theirs.sharding)
    )
    return same


def _normal(z: Floats) -> Floats:
    """Cumulative normal distribution."""
    values: Floats = np.array(ndtr(z), dtype=np.float64)
    return values


__all__ = [
    "CalibratedPrices",
    "Calibration",
    "Observation",
    "ObservedCollective",
    "calibrate",
    "mesh_distance",
    "observed_weight_sharding",
]
