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
from perfmodel.shapes import ModelShape
from perfmodel.step_time import Z80, Priced, combine
from perfmodel.terms import Terms, step_terms
from perfmodel.topology import Floats
from perfmodel.workload import GROUPS, REMAT, Workload, chip_of, from_config, stack

#: Collectives that a group of axes issues; a profile that names kinds is split by them.
KINDS: Mapping[str, frozenset[str]] = {
    "weights": frozenset({"all-gather", "reduce-scatter", "all-reduce"}),
    "expert_weights": frozenset({"all-gather", "reduce-scatter", "all-reduce"}),
    "replica": frozenset({"all-reduce", "reduce-scatter", "all-gather"}),
    "model": frozenset({"all-gather", "reduce-scatter", "all-reduce", "collective-permute"}),
    "seq": frozenset({"all-gather", "reduce-scatter", "all-reduce", "collective-permute", "all-to-all"}),
    "expert": frozenset({"all-to-all"}),
    "pipeline": frozenset({"collective-permute", "send", "recv"}),
}

#: Relative uncertainty (standard deviation of the logarithm) of a measured part that keeps its size, and what is added
#: per unit of |log(ratio)| it is rescaled by; of a part the baseline did not have, with the shape known and assumed;
#: per halving or doubling of an axis for what no term sees (layouts, fusions, schedules).
SPREAD_KEPT = 0.02
SPREAD_PER_LOG = 0.25
SPREAD_NEW = 0.5
SPREAD_NEW_ASSUMED = 0.9
SPREAD_PER_DOUBLING = 0.015

#: Shapes assumed where the user did not say what was trained: LLaMA-3 sizes (arXiv 2407.21783, table 3).
ASSUMED_SHAPES = (
    ModelShape(32, 4096, 14336, 32, 8, 128, 128256, name="assumed 8B"),
    ModelShape(80, 8192, 28672, 64, 8, 128, 128256, name="assumed 70B"),
    ModelShape(126, 16384, 53248, 128, 8, 128, 128256, name="assumed 405B"),
)
#: Tokens per sequence and per chip assumed where neither the user nor the measured compute time says.
ASSUMED_SEQ_LEN = 4096
ASSUMED_TOKENS_PER_CHIP = 8192


@dataclass(frozen=True)
class ObservedCollective:
    """Time of one kind of collective on these axes, seconds per step and chip.  axes: names; across slices `dcn`."""

    axes: tuple[str, ...]
    kind: str
    time_s: float


@dataclass(frozen=True)
class Observation:
    """One step of the baseline as measured, in seconds per step and chip.

    parts_s: exclusive parts, keys `compute`, `hbm`, `ici:<axis>` or `ici:<axis>+<axis>`, `ici` (axis unknown), `dcn`,
    `input`, `host`, `idle`, `other`, as in Diagnosis.breakdown_s; they add up to the step, and what they leave out is
    `other`.  HBM time may be split into `hbm:weights` (products that wait for their weights), `hbm:activations` and
    `hbm:optimizer`, which scale differently; `hbm` alone is taken as activations.  collectives: their kinds, where
    known.  step_time_s: None where the profile has no steps; parts_s may then be shares, and prices are relative to the
    baseline.  memory_bytes: peak of the worst chip, flops: executed per step and chip; None if not measured.
    weights_arithmetic_s: what the products in `hbm:weights` would take if only their arithmetic bound them.
    """

    step_time_s: float | None
    parts_s: Mapping[str, float]
    collectives: tuple[ObservedCollective, ...] = ()
    memory_bytes: float | None = None
    flops: float | None = None
    weights_arithmetic_s: float = 0.0

    @property
    def work_s(self) -> float:
        """Time on the chip itself: compute and HBM."""
        return sum(v for k, v in self.parts_s.items() if k == "compute" or k.split(":")[0] == "hbm")


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
    over modelled compute time.  group_s: measured time by group of axes (keys of `workload.GROUPS`), group_dcn_s: the
    same across slices.  efficiencies: the generic ones, for what was not measured.
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
            np.array([_distance(self.baseline.mesh, config.mesh) for config in filled]),
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
        for name in terms.traffic:
            key = f"ici:{name}"
            parts[key], spreads[key] = self._communication(
                self.group_s.get(name, 0.0),
                base.resources_s[key],
                new.resources_s[key],
                base.parts_s[key],
                new.parts_s[key],
            )
        before = sum((t.dcn_s for t in base_terms.traffic.values()), np.zeros(1))
        after = sum((t.dcn_s for t in terms.traffic.values()), np.zeros(1))
        parts["dcn"], spreads["dcn"] = self._communication(
            sum(self.group_dcn_s.values()), before, after, base.parts_s["dcn"], new.parts_s["dcn"]
        )
        rescaled("ici", self.unplaced_s, _all_links(base), _all_links(new))
        batch = workload.training.global_batch / base_work.training.global_batch
        for name in ("input", "host"):
            parts[name] = seen.get(name, 0.0) * batch
            spreads[name] = np.full(1, SPREAD_KEPT)
        self._idle(parts, spreads, base_terms, terms)
        return self._finished(parts, spreads, workload, base_work, distance)

    def _communication(
        self, measured: float, before: Floats, after: Floats, hidden_before: Floats, hidden_after: Floats
    ) -> tuple[Floats, Floats]:
        """Exposed time and its spread.  before, after: modelled time on the links; hidden_*: what the model exposes."""
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
        sigma = np.sqrt(variance + (SPREAD_PER_DOUBLING * distance) ** 2)
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

    config: the baseline; model, batch and sequence length may be absent.  Raises ValueError where nothing was measured,
    ConfigError for a chip that is not known.
    """
    if not any(value > 0 for value in observation.parts_s.values()):
        raise ValueError("the observation has no measured part, so there is nothing to calibrate with")
    table = load_efficiencies() if efficiencies is None else efficiencies
    if isinstance(table, EfficiencyTable):
        table = table.resolve(chip_of(config.hardware), config.training.precision, config.model)
    filled, assumed = fill_in(config, observation, table)
    terms = step_terms(from_config(filled))
    base = combine(terms, table)
    # How much slower than modelled this program's own work runs; waiting for weights says nothing about that.
    measured = observation.work_s - observation.parts_s.get("hbm:weights", 0.0)
    modelled = float((base.parts_s["compute"] + base.parts_s["hbm"]).reshape(-1)[0])
    if observation.parts_s.get("hbm:weights", 0.0) > 0.1 * observation.work_s:
        measured = modelled
    group_s, unplaced = _by_group(filled.mesh, observation, base)
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


def fill_in(
    config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies
) -> tuple[ExperimentConfig, tuple[str, ...]]:
    """The configuration with every gap filled, and the names of what was filled.

    An unknown batch or sequence length is the one whose modelled compute takes as long as the measured (or a usual one,
    where no step time is known).  An unknown model is the assumed shape whose states fit a chip and whose weight
    collectives then take most nearly as long as measured, or, without any, whose tokens per chip are most usual.
    """
    assumed = []
    training, mesh = config.training, config.mesh
    if training.seq_len is None:
        assumed.append("training.seq_len")
        training = replace(training, seq_len=max(ASSUMED_SEQ_LEN, mesh.size("seq") * 128))
    if training.global_batch is None:
        assumed.append("training.global_batch")
        shards = mesh.size("replica", "data", "fsdp", "expert")
        tokens = ASSUMED_TOKENS_PER_CHIP * config.hardware.chips
        training = replace(training, global_batch=max(shards, round(tokens / (training.seq_len or 1))))
    free = assumed[-1] if assumed else ""
    filled = replace(config, training=training)
    if config.model is not None:
        return _with_tokens(filled, free, observation, efficiencies), tuple(assumed)
    choices = []
    for shape in ASSUMED_SHAPES:
        tried = _with_tokens(replace(filled, model=shape), free, observation, efficiencies)
        choices.append((_implausibility(tried, observation, efficiencies), tried))
    return min(choices, key=lambda choice: choice[0])[1], (*assumed, "model")


def _with_tokens(
    config: ExperimentConfig, free: str, observation: Observation, efficiencies: Efficiencies
) -> ExperimentConfig:
    """The configuration with the batch or sequence length whose modelled compute and HBM time is the measured one.

    free: the dotted name of the one that may move; neither where it is empty.
    """
    if not free or not observation.step_time_s or observation.work_s <= 0:
        return config
    for _ in range(6):
        ratio = _work_ratio(config, observation, efficiencies)
        training = config.training
        if free == "training.global_batch":
            training = replace(training, global_batch=max(1, round((training.global_batch or 1) * ratio)))
        else:
            step = 128 * config.mesh.size("seq")
            training = replace(training, seq_len=max(step, step * round((training.seq_len or step) * ratio / step)))
        config = replace(config, training=training)
    return config


def _work_ratio(config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies) -> float:
    """Measured work over modelled: by executed FLOPs where they were measured, else by the time they take."""
    workload = from_config(config)
    terms = step_terms(workload)
    if observation.flops:
        forward = terms.dense_forward_s + terms.experts_forward_s + terms.scores_forward_s
        executed = terms.dense_s + terms.experts_s + terms.scores_s + terms.head_s
        if config.training.remat in ("full", "offload"):
            executed = executed + forward
        return observation.flops / float((executed * workload.chip.peak).reshape(-1)[0])
    parts = combine(terms, efficiencies).parts_s
    # Products that wait for their weights take longer than their arithmetic; how much longer is not known here.
    arithmetic = observation.work_s - observation.parts_s.get("hbm:weights", 0.0)
    return max(arithmetic, 0.1 * observation.work_s) / float((parts["compute"] + parts["hbm"]).reshape(-1)[0])


def _activation_traffic(terms: Terms) -> Floats:
    again = np.isin(terms.remat, (REMAT.index("full"), REMAT.index("offload")))
    return terms.hbm_activations_s + np.where(again, terms.hbm_recompute_s, 0.0)


def _implausibility(config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies) -> float:
    """How far an assumed shape is from what was measured, in logarithms; far where its states would not fit."""
    work = from_config(config)
    used = memory.per_chip(work)
    states = float((used.params + used.optimizer + used.gradients).reshape(-1)[0])
    capacity = float(used.capacity.reshape(-1)[0])
    misfit = 100.0 * max(0.0, states / (0.7 * capacity) - 1.0)
    base = combine(step_terms(work), efficiencies)
    groups, _ = _by_group(config.mesh, observation, base)
    names = ("weights", "expert_weights", "replica")
    measured = sum(groups[name] for name in names)
    modelled = sum(float(base.parts_s[f"ici:{name}"].reshape(-1)[0]) for name in names)
    if measured > 0 and modelled > 0:
        return misfit + abs(log(modelled / measured))
    tokens = float((work.training.global_batch * work.training.seq_len / work.chip.chips).reshape(-1)[0])
    return misfit + abs(log(tokens / ASSUMED_TOKENS_PER_CHIP))


def observed_weight_sharding(observation: Observation, mesh: Mesh) -> str | None:
    """What the kinds of collectives on the batch axes say of the weights: `none` where gradients are all-reduced and
    nothing is gathered, `fsdp` where weights are gathered, None where the profile names no kinds there."""
    batch = {axis for axis, _ in mesh.ici if mesh.role(axis) in ("replica", "data", "fsdp")}
    times: dict[str, float] = {}
    for item in observation.collectives:
        if batch & set(item.axes):
            times[item.kind] = times.get(item.kind, 0.0) + item.time_s
    gathered = times.get("all-gather", 0.0) + times.get("reduce-scatter", 0.0)
    total = gathered + times.get("all-reduce", 0.0)
    if total <= 0:
        return None
    return "fsdp" if gathered > 0.2 * total else "none"


def _by_group(mesh: Mesh, observation: Observation, base: Priced) -> tuple[dict[str, float], float]:
    """Measured time by group, and what could not be placed: each bar goes to the groups that talk on its axes.

    Groups that share a bar divide it by their modelled time, among those that issue the kinds the profile names.
    """
    talking = {
        name: frozenset(axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in members)
        for name, members in GROUPS.items()
    }
    modelled = {name: float(base.resources_s[f"ici:{name}"].reshape(-1)[0]) for name in talking}
    found: dict[str, float] = dict.fromkeys(talking, 0.0)
    unplaced = observation.parts_s.get("ici", 0.0)
    for bar, seconds in observation.parts_s.items():
        if not bar.startswith("ici:") or seconds <= 0:
            continue
        axes = frozenset(bar.removeprefix("ici:").split("+"))
        by_kind = _kinds_on(axes, observation.collectives)
        for kind, share in by_kind.items():
            groups = _groups_on(axes, kind, talking, modelled)
            total = sum(modelled[name] for name in groups)
            for name in groups:
                found[name] += seconds * share * modelled[name] / total
            if not groups:
                unplaced += seconds * share
    return found, unplaced


def _kinds_on(axes: frozenset[str], collectives: Sequence[ObservedCollective]) -> dict[str | None, float]:
    """Shares of the bar's time by kind; {None: 1} where no kind is known."""
    times: dict[str | None, float] = {}
    for item in collectives:
        if frozenset(item.axes) == axes:
            times[item.kind] = times.get(item.kind, 0.0) + item.time_s
    total = sum(times.values())
    return {kind: value / total for kind, value in times.items()} if total > 0 else {None: 1.0}


def _groups_on(
    axes: frozenset[str], kind: str | None, talking: Mapping[str, frozenset[str]], modelled: Mapping[str, float]
) -> list[str]:
    present = [name for name in talking if talking[name] and modelled[name] > 0]
    exact = [name for name in present if talking[name] == axes]
    touching = [name for name in present if talking[name] & axes]
    for groups in (exact, touching):
        fitting = [name for name in groups if kind is None or kind in KINDS[name]]
        if fitting:
            return fitting
    return exact or touching


def _all_links(priced: Priced) -> Floats:
    return sum((v for k, v in priced.resources_s.items() if k.startswith("ici:")), np.zeros(1))


def _distance(old: Mesh, new: Mesh) -> float:
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
