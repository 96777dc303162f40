"""Calibration: a profile is evidence about a few efficiencies; candidates are priced with those it leaves most likely.

Around the fitted efficiencies lies a prior: how much single programs and machines differ (`perfmodel.posterior`).  What
a profile measured (matmuls, attention, elementwise work, exposed time and time in flight of each kind of traffic, gaps,
or the step time alone) moves them to a posterior, and candidates go through the same `step_terms` and `combine` as
everywhere.  So structure comes from physics: narrow shards become wide, weights stop streaming, bubbles shrink.
What a part measured beyond what the posterior explains is *unexplained*: it is kept as its own time, with its own
uncertainty, and does not scale with what it was booked under.  On the baseline itself prices are what was measured.

    calibration = calibrate(config, Observation(step_time_s=1.2, parts_s=diagnosis.breakdown_s))
    prices = calibration.price([candidate, …])
    prices.speedup[0], prices.low80_s[0], prices.high80_s[0], prices.parts_s["ici:model"][0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from perfmodel.arrays import Floats, mapped, shape_of
from perfmodel.baseline import fill_in
from perfmodel.confidence import Confidence, input_sets_pace, shipped
from perfmodel.config import ExperimentConfig, filled_from, mesh_distance
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.observation import Observation, by_group, equations_of
from perfmodel.posterior import Informed, Posterior, expected, informed_by, scaled, solve
from perfmodel.step_time import Z80, Priced, combine
from perfmodel.terms import Terms, step_terms
from perfmodel.workload import REMAT, Workload, from_config, stack


@dataclass(frozen=True)
class Prices:
    """Candidates as arrays, in the order given.

    step_time_s: seconds (relative to a baseline of 1 where it had no step time).  sigma: the model's own standard
    deviation of log(time) relative to the baseline, 0 for the baseline alone; spread: the one for which 80 % of
    measurements lie within Z80 of it either way.  speedup: measured baseline time per token over the candidate's.
    parts_s: the candidate's parts by the names of the observation's; they add up to its step time.  at_peak_s: no step
    is shorter, whatever the efficiencies.
    """

    step_time_s: Floats
    sigma: Floats
    spread: Floats
    speedup: Floats
    parts_s: Mapping[str, Floats]
    at_peak_s: Floats

    @cached_property
    def low80_s(self) -> Floats:
        return np.minimum(self.step_time_s, np.maximum(self.at_peak_s, self.step_time_s * np.exp(-Z80 * self.spread)))

    @cached_property
    def high80_s(self) -> Floats:
        return np.asarray(self.step_time_s * np.exp(Z80 * self.spread))

    @cached_property
    def speedup_low80(self) -> Floats:
        return np.asarray(self.speedup * self.step_time_s / self.high80_s)

    @cached_property
    def speedup_high80(self) -> Floats:
        """As the step, no faster than everything at its peak."""
        return np.asarray(self.speedup * self.step_time_s / self.low80_s)

    @cached_property
    def lower_s(self) -> Floats:
        """Bound below: everything at its peak and at the same time."""
        return np.minimum(self.low80_s, self.at_peak_s)

    @cached_property
    def upper_s(self) -> Floats:
        """Bound above: as far beyond the interval as its upper end is from the estimate."""
        return np.asarray(self.high80_s**2 / self.step_time_s)

    def range_at(self, index: int) -> dict[str, float]:
        """Return the step time of one candidate with its bounds and interval."""
        ends = {name: getattr(self, f"{name}_s") for name in ("lower", "upper", "low80", "high80")}
        return {name: float(values[index]) for name, values in {"estimate": self.step_time_s, **ends}.items()}


#: Standard deviation of log(time) that the model's form adds per unit of a part's change on the log scale (up to the
#: most), of what is unexplained when the mesh changes, and per doubling of axes for what no term sees (layouts,
#: fusions, schedules), with the model's shape known and assumed.
SPREAD_PER_LOG, MOST_LOG = 0.1, 1.5
SPREAD_UNEXPLAINED = 0.5
SPREAD_PER_DOUBLING, SPREAD_PER_DOUBLING_ASSUMED = 0.03, 0.06
#: Nothing wider is said: only a configuration that cannot be what was measured comes near.
MOST_SIGMA = float(np.log(1000.0))
#: Steps away from the run (doublings of the mesh, settings of the training) over which what a step time says beyond the
#: model fades by e: of runs of programs that no fit has seen, the residuals of two have 0.7 in common one step apart,
#: 0.4 six apart (docs/one-price.md).
FADES_OVER = 6.0
#: How far, as a logarithm, a part may be from the model and still scale as a whole.
WITHIN_NOISE = 0.2
#: Parts that move weights and gradients, whose bytes do not depend on the tokens of a step.
OF_WEIGHTS = ("ici:weights", "ici:expert_weights", "ici:replica", "dcn")
#: Parts of the layers, which a recomputation repeats.
OF_LAYERS = ("work", "hbm", "ici:model", "ici:seq", "ici:expert")
#: Candidates, or points of the posterior times candidates, priced at once: their arrays stay in the processor's cache.
BLOCK = 32_768


#: Standard deviation of log(time) added, but on the baseline itself, where no op was listed, and where the profile was
#: recorded on another kind of chip than the configuration names.
SPREAD_UNLISTED, SPREAD_OF_STAND_IN = 0.1, 0.3
#: Prior probability that a measured step contains time of something else, and the range of that time, in steps.
FOREIGN_PRIOR, FOREIGN_RANGE = 0.05, (0.05, 10.0)
#: Standard deviation of log(measured / modelled) that is taken for the model's own error, at least and at most: means
#: of whole publishers whose programs no fit has seen are 0.30 apart, those of seen ones half of it.
MODEL_ERROR = (0.15, 0.3)


#: Efficiencies, and the factors on what a step asks for.
Point = tuple[Efficiencies, Mapping[str, Floats]]


#: From so far apart, as a logarithm, what a profile recorded and what the configuration makes disagree: calibrated
#: steps of 66 simulated programs are within 0.09 of each other in both.  Below LEAST_LISTED of the step's ops nothing
#: tells.
DISAGREES, LEAST_LISTED = 0.25, 0.9


class Disagreement(NamedTuple):
    """Hold what a profile recorded of a step, and its configuration makes: `flops` executed per chip, or seconds of
    `work`, matmuls and attention."""

    of: str
    recorded: float
    modelled: float


class Shares(NamedTuple):
    """Of work, what waits for weights; of gaps, what is pipeline bubble and what is waiting for kernel launches."""

    streaming: Floats
    bubble: Floats
    launches: Floats


@dataclass(frozen=True)
class Calibration:
    """Prices other configurations of the run whose step was measured.  Build it with `calibrate`.

    baseline: the configuration with every gap filled.  assumed: dotted names of what was filled in.  group_s: measured
    time by group of axes (keys of `workload.GROUPS`) inside a slice; unplaced_s: of collectives that no group issues.
    posterior: of the efficiencies.  unit_s: seconds that a measured 1 stands for (1 where the profile has a step time).
    foreign_s: of a step time alone, what more likely is no part of the model's step at all (an input stall, a
    checkpoint, another program) than an error of the model; in seconds, it stays whatever changes.  confidence: how far
    gains like these were measured to come true; stand_in: whether the profile was recorded on another kind of chip than
    the configuration names.
    """

    baseline: ExperimentConfig
    observation: Observation
    assumed: tuple[str, ...]
    posterior: Posterior
    group_s: Mapping[str, float]
    unplaced_s: float
    unit_s: float = 1.0
    foreign_s: float = 0.0
    confidence: Confidence = field(default_factory=shipped)
    stand_in: bool = False

    def price(self, candidates: Sequence[ExperimentConfig], transfer: Floats | float = 0.0) -> Prices:
        """Price configurations of the same run.  What a candidate leaves open is taken from the baseline."""
        filled = [filled_from(candidate, self.baseline) for candidate in candidates]
        distance = np.array([mesh_distance(self.baseline.mesh, config.mesh) for config in filled])
        return self.price_workload(stack([from_config(config) for config in filled]), distance, transfer)

    def price_workload(self, workload: Workload, distance: Floats, transfer: Floats | float = 0.0) -> Prices:
        """Price a workload of up to thousands of candidates: the spread of each costs dozens of prices.

        distance: from the baseline's mesh (`config.mesh_distance`).  transfer: standard deviation of log(time) of
        candidates that run on other hardware or train otherwise than the calibration carries over to; 0 elsewhere.
        """
        terms = step_terms(workload)
        each = self._work_ratio(workload)
        model, priced = self._modelled(terms, self._likely)
        parts, variance = self._with_unexplained(model, self._base_parts, terms, each, distance)
        total = _total(parts)
        variance = variance / total**2 + self._per_doubling**2 * distance
        before = self._before(parts, model, each)
        for name, value in parts.items():
            far = np.abs(np.log(np.maximum(value, 1e-12) / np.maximum(before[name], 1e-12)))
            variance = variance + (SPREAD_PER_LOG * np.minimum(far, MOST_LOG) * value / total) ** 2
        variance = variance + self._variance(terms, each, distance, total)
        parts = self._as_run(parts, model, terms, each, distance)
        ran = (distance == 0) & same_training(workload, self._base_work) & (transfer == 0.0)
        thin = SPREAD_UNLISTED * (1.0 - self.observation.coverage)
        variance = variance + thin**2 + (SPREAD_OF_STAND_IN * self.stand_in) ** 2 + transfer**2
        sigma = np.where(ran, 0.0, np.minimum(np.sqrt(variance), MOST_SIGMA))
        total = _total(parts) / self.unit_s
        tokens_ratio = _per_step_tokens(workload) / _per_step_tokens(self._base_work)
        shape = np.broadcast_shapes(total.shape, sigma.shape, shape_of(workload))
        named = self._named(parts, self._shares(model, priced))
        prices: Prices = mapped(
            lambda array: np.broadcast_to(array, shape),
            Prices(
                step_time_s=total,
                sigma=sigma,
                spread=self.confidence.range_sigma(sigma),
                speedup=self.observation.measured_s / total * tokens_ratio,
                parts_s={name: value / self.unit_s for name, value in named.items()},
                at_peak_s=at_peak_s(terms) / self.unit_s,
            ),
        )
        return prices

    def step_time_s(self, workload: Workload, distance: Floats) -> Floats:
        """Return seconds per step as `price_workload` does, without spread and parts: what orders a space.

        The arrays of the workload should fit the processor's cache (BLOCK candidates).
        """
        terms, each = step_terms(workload), self._work_ratio(workload)
        model, _ = self._modelled(terms, self._likely)
        parts, _ = self._with_unexplained(model, self._base_parts, terms, each, distance)
        return _total(self._as_run(parts, model, terms, each, distance)) / self.unit_s

    def _as_run(
        self, parts: dict[str, Floats], model: Mapping[str, Floats], terms: Terms, each: Floats, distance: Floats
    ) -> dict[str, Floats]:
        """Return the parts with what holds less far from the run faded, and no more recomputation saved than was
        seen."""
        if not self._divided and not self.assumed:
            parts = self._faded(parts, terms, distance)
        other = bool(np.any(terms.work.training.remat != self._base_work.training.remat))
        if other and self.observation.recomputed_s is not None:
            parts = self._saving_what_is_recomputed(*self._by_remat(parts, model, terms.work, each, distance))
        return parts

    def _faded(self, parts: dict[str, Floats], terms: Terms, distance: Floats) -> dict[str, Floats]:
        """Return parts of candidates where a step time alone says that they are faster than the model has it, as far as
        that holds so far from the run.  What it says they are slower by stays, as time of something else does: distance
        makes no candidate look better.  Of an assumed shape the model alone says nothing."""
        alone, _ = self._modelled(terms, (self.posterior.values.efficiencies, {}))
        calibrated = sum((parts[name] for name in alone), np.zeros(1))
        faded = 1.0 - np.exp(-(distance + self._settings_moved(terms.work)) / FADES_OVER)
        times = np.maximum(sum(alone.values(), np.zeros(1)) / np.maximum(calibrated, 1e-12), 1.0) ** faded
        return parts | {name: parts[name] * times for name in alone}

    def _settings_moved(self, workload: Workload) -> Floats:
        """Return how many settings of the training differ from the run's."""
        mine, base = workload.training, self._base_work.training
        moved = sum(
            (
                getattr(mine, name) != getattr(base, name)
                for name in ("global_batch", "virtual_stages", "remat", "sharding")
            ),
            np.zeros(1),
        )
        counts = (mine.micro_batches, base.micro_batches)
        sizes = (
            training.global_batch / (training.micro_batches * work.mesh.batch_shards)
            for training, work in ((mine, workload), (base, self._base_work))
        )
        return np.asarray(moved + (np.not_equal(*counts) & np.not_equal(*sizes)))

    def _by_remat(
        self, parts: dict[str, Floats], model: Mapping[str, Floats], workload: Workload, each: Floats, distance: Floats
    ) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Parts of candidates under the baseline's policy, and under their own: what a layer computes and sends is
        repeated whether the model explains it or not, so it changes as a whole."""
        terms = step_terms(_with_remat(workload, self._base_work.training.remat))
        same, _ = self._modelled(terms, self._likely)
        before, _ = self._with_unexplained(same, self._base_parts, terms, each, distance)
        return before, parts | {k: before[k] * model[k] / np.maximum(same[k], 1e-12) for k in OF_LAYERS}

    def _saving_what_is_recomputed(self, before: Mapping[str, Floats], parts: dict[str, Floats]) -> dict[str, Floats]:
        """The parts of candidates, which save no more of the recomputation than the baseline was seen to do."""
        kept = self._not_recomputed * (sum(before.values(), np.zeros(1)) > sum(parts.values(), np.zeros(1)))
        return {name: value + kept * (before[name] - value) for name, value in parts.items()}

    @cached_property
    def _not_recomputed(self) -> float:
        """Share of the recomputation expected of the baseline that the profile shows not to take place."""
        none = _with_remat(self._base_work, np.array([REMAT.index("none")]))
        terms, each, distance = step_terms(none), np.ones(1), np.zeros(1)
        model, _ = self._modelled(terms, self._likely)
        parts, _ = self._with_unexplained(model, self._base_parts, terms, each, distance)
        ran, without = self._by_remat(parts, model, none, each, distance)
        saving_s = float(np.asarray(sum(ran.values()) - sum(without.values())).reshape(-1)[0])
        seen_s = (self.observation.recomputed_s or 0.0) * self.unit_s
        return max(0.0, 1.0 - seen_s / saving_s) if saving_s > 0 else 0.0

    def _work_ratio(self, workload: Workload) -> Floats:
        """Tokens on a chip in a step over the baseline's."""
        chips = workload.chip.chips / self._base_work.chip.chips
        return np.asarray(_per_step_tokens(workload) / _per_step_tokens(self._base_work) / chips)

    def _before(self, parts: Mapping[str, Floats], model: Mapping[str, Floats], each: Floats) -> dict[str, Floats]:
        """What each part was on the baseline, times the tokens of a step."""
        seen = {name: self._seen_s.get(name, self._base_parts.get(name, 0.0)) for name in model}
        return {name: np.asarray(seen.get(name, value) * each) for name, value in parts.items()}

    def _variance(self, terms: Terms, each: Floats, distance: Floats, total: Floats) -> Floats:
        """Variance of log(time) from what the efficiencies may still be, given that the baseline took what it took."""
        variance: Floats = np.zeros(1)
        at_once = max(1, BLOCK // max(1, total.size))
        points, base_parts = self._sigma_points
        for start in range(0, len(self.posterior.z), at_once):
            # Points along a dimension of their own, before those of the candidates.
            along = partial(_along_first, points=slice(start, start + at_once), dimensions=total.ndim)
            point = points[0].with_(**along(vars(points[0]))), along(points[1])
            parts, _ = self._with_unexplained(self._modelled(terms, point)[0], along(base_parts), terms, each, distance)
            moved = np.log(np.maximum(sum(parts.values(), np.zeros(1)), 1e-12) / total)
            variance = variance + np.sum(moved**2, axis=0)
        return variance

    @property
    def _per_doubling(self) -> float:
        return SPREAD_PER_DOUBLING_ASSUMED if "model" in self.assumed else SPREAD_PER_DOUBLING

    def _with_unexplained(
        self,
        model: Mapping[str, Floats],
        base: Mapping[str, Floats | float],
        terms: Terms,
        each: Floats,
        distance: Floats,
    ) -> tuple[dict[str, Floats], Floats]:
        """Parts of candidates with what the baseline measured beyond the model, and how unsure that is, in seconds.

        Work and what moves activations follow the tokens of a step, what moves weights does not; gaps, and what cannot
        be placed, may do either: half of each.  Of collectives it is there where their group remains.
        """
        parts: dict[str, Floats] = {}
        variance: Floats = np.zeros(1)
        near = np.minimum(1.0, distance)
        follows = (1.0 + each) / 2.0
        for name, value in model.items():
            seen = self._seen_s.get(name)
            if seen is None:
                parts[name] = value
                continue
            modelled = np.maximum(base[name], 1e-12)
            if not self._divided:
                parts[name] = value * (max(seen, 1e-12) / modelled)
                continue
            # Within the noise of the measurement and of the model's form, the part as a whole is so much longer.
            within = 0.0 if name == "gaps" else WITHIN_NOISE
            times = np.exp(np.clip(np.log(max(seen, 1e-12) / modelled), -within, within))
            rest = seen - base[name] * times
            # What the model expects too much of goes with the tokens: a hidden transfer stays hidden under more work.
            least = 0.5 * value * np.minimum(1.0, seen / modelled)
            # No collective is left of a group that is gone, explained or not.
            grows = follows if name == "gaps" else np.ones(1) if name in OF_WEIGHTS else each
            beyond = np.where(rest >= 0, rest * grows * _talks(name, terms), rest * each)
            parts[name] = np.maximum(value * times + beyond, least)
            # As unsure as there is of it, so that more tokens make nothing more certain.
            variance = variance + (rest * grows * SPREAD_UNEXPLAINED * near) ** 2 + (rest * (each - 1.0) / 2.0) ** 2
        for axes, seconds in {(): self.unplaced_s, **self.observation.unexplained_s}.items():
            if seconds > 0:
                stays = seconds * self.unit_s * follows * self._has_axes(axes, terms)
                parts["ici"] = parts.get("ici", np.zeros(1)) + stays
                variance = variance + (seconds * self.unit_s * follows * SPREAD_UNEXPLAINED * near) ** 2
        # Copies change layouts between axes: of axes that go, some copies go too.
        copies = self.observation.copies_s * self.unit_s
        inner = tuple(
            axis
            for axis, n in self.baseline.mesh.ici
            if n > 1 and self.baseline.mesh.role(axis) in ("seq", "model", "expert")
        )
        parts["copies"] = copies * each * (1.0 + self._has_axes(inner, terms)) / 2.0
        variance = variance + (copies * each * SPREAD_UNEXPLAINED * near) ** 2
        parts["foreign"] = self.foreign_s * each  # not identified, so no larger batch is credited with it
        variance = variance + (parts["foreign"] * SPREAD_UNEXPLAINED * near) ** 2
        if seen_input_s := self.observation.parts_s.get("input", 0.0):
            busy = sum(parts.values(), np.zeros(1))
            serial = seen_input_s * self.unit_s * each
            beside_step = np.maximum(0.0, self.observation.measured_s * self.unit_s * each - busy)
            pace = input_sets_pace(seen_input_s / self.observation.measured_s)
            parts["input"] = pace * beside_step + (1.0 - pace) * serial
            variance = variance + pace * (1.0 - pace) * (beside_step - serial) ** 2
        return parts, variance

    def _has_axes(self, axes: tuple[str, ...], terms: Terms) -> Floats:
        """1 where candidates have all these axes, 0 where one is gone."""
        sizes = [np.asarray(getattr(terms.work.mesh, self.baseline.mesh.role(axis))) for axis in axes]
        return np.asarray(np.prod(np.broadcast_arrays(*[size > 1 for size in sizes]), axis=0) if sizes else np.ones(1))

    def _named(self, parts: Mapping[str, Floats], shares: Shares) -> dict[str, Floats]:
        """The parts by the names of an observation; of what was not measured, in the shares that the model expects."""
        seen = self.observation.parts_s
        named = {name: value for name, value in parts.items() if name not in ("work", "gaps", "copies", "foreign")}
        work_seen = seen.get("compute", 0.0) + seen.get("hbm:weights", 0.0)
        streaming = shares.streaming
        if work_seen > 0:
            # Less waiting goes with what was measured, more is added to it: the model may have expected next to none.
            base, share = self._base_shares.streaming, seen.get("hbm:weights", 0.0) / work_seen
            kept = np.minimum(1.0, streaming / np.maximum(base, 1e-30))
            streaming = np.minimum(1.0, share * kept + np.maximum(0.0, streaming - base))
        waits = parts["work"] * streaming
        named["compute"] = parts["work"] - waits
        named["hbm"] = parts["hbm"] + waits + parts["copies"]
        whole = self.observation.gaps_s
        if self._divided and whole > 0:
            named |= {name: parts["gaps"] * min(1.0, seen.get(name, 0.0) / whole) for name in ("idle", "host")}
        else:
            named |= {"idle": parts["gaps"] * shares.bubble, "kernel_launches": parts["gaps"] * shares.launches}
        named["other"] = parts["gaps"] - sum(named.get(name, 0.0) for name in ("idle", "host", "kernel_launches"))
        named["other"] = named["other"] + parts["foreign"]
        return named

    @cached_property
    def _base_work(self) -> Workload:
        return from_config(self.baseline)

    @cached_property
    def _base_terms(self) -> Terms:
        return step_terms(self._base_work)

    @cached_property
    def _likely(self) -> Point:
        """The most likely efficiencies and factors."""
        return self.posterior.values.at(self.posterior.z)

    @cached_property
    def _base_parts(self) -> dict[str, float]:
        parts, _ = self._modelled(self._base_terms, self._likely)
        return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in parts.items()}

    @cached_property
    def _base_shares(self) -> Shares:
        return self._shares(*self._modelled(self._base_terms, self._likely))

    @cached_property
    def _sigma_points(self) -> tuple[Point, dict[str, Floats]]:
        """Points one standard deviation from the most likely one, along each column of the covariance's root, and the
        baseline's parts there; arrays (points)."""
        root: Floats = np.asarray(np.linalg.cholesky(self.posterior.covariance), dtype=np.float64)
        points = self.posterior.values.at(self.posterior.z + root.T)
        parts, _ = self._modelled(self._base_terms, points)
        return points, {name: np.broadcast_to(value, len(root)) for name, value in parts.items()}

    @cached_property
    def disagreement(self) -> Disagreement | None:
        """Return where a profile recorded other work than the configuration makes, beyond what both may be off by:
        executed FLOPs, else the time of matmuls and attention; None where they agree or nothing tells."""
        seen, terms, likely = self.observation, self._base_terms, self._likely
        if not self._divided or seen.coverage < LEAST_LISTED:
            return None
        if seen.flops:
            # Attention kernels may not be counted, and it is not sure what is recomputed.
            ends = terms.executed_flops(0.0, attention=False), terms.executed_flops(1.0)
            nearest = min(max(seen.flops, ends[0]), ends[1])
            if abs(np.log(seen.flops / nearest)) > DISAGREES:
                return Disagreement("flops", seen.flops, nearest)
        if self.stand_in or not self.observation.step_time_s:
            return None
        # What only an assumed shape may be wrong by explains nothing.
        own = {item.name for item in self.posterior.values.informed if item.spread > 0}
        factors = {name: factor for name, factor in likely[1].items() if name in own}
        shown = expected(scaled(terms, factors), likely[0])
        modelled_s = float(np.asarray(shown["matmul"] + shown["attention"]).reshape(-1)[0])
        seen_s = seen.parts_s.get("compute", 0.0) + seen.parts_s.get("hbm:weights", 0.0)
        if seen_s > 0 and abs(np.log(seen_s / modelled_s)) > DISAGREES:
            return Disagreement("work", seen_s, modelled_s)
        return None

    @property
    def _divided(self) -> bool:
        """Whether parts of the step were measured."""
        return any(value > 0 for value in self.observation.parts_s.values())

    @cached_property
    def _seen_s(self) -> dict[str, float]:
        """Measured seconds by the parts of `_modelled`.  Of a step time alone all parts take their share."""
        seen = self.observation.parts_s
        if not self._divided:
            whole = (self.observation.measured_s * self.unit_s - self.foreign_s) / sum(self._base_parts.values())
            return {name: seconds * whole for name, seconds in self._base_parts.items()}
        by_name = {
            "work": seen.get("compute", 0.0) + seen.get("hbm:weights", 0.0),
            "hbm": sum(seen.get(name, 0.0) for name in ("hbm", "hbm:activations", "hbm:optimizer")),
            "dcn": seen.get("dcn", 0.0),
            **{f"ici:{name}": seconds for name, seconds in self.group_s.items()},
        }
        by_name["gaps"] = self.observation.gaps_s
        return {name: seconds * self.unit_s for name, seconds in by_name.items()}

    def _modelled(self, terms: Terms, point: Point) -> tuple[dict[str, Floats], Priced]:
        """The model's parts at a point: work (with what waits for weights), hbm, ici:<group>, dcn, gaps; and the step
        that they are of."""
        efficiencies, factors = point
        priced = combine(scaled(terms, factors), efficiencies)
        parts = priced.parts_s
        work = parts["compute"] - priced.waiting_s if self._launches_matter else parts["compute"]
        gaps = parts["bubble"] + parts["overhead"] + (parts["compute"] - work)
        links = {name: value for name, value in parts.items() if name.startswith("ici:")}
        return {"work": work, "hbm": parts["hbm"], **links, "dcn": parts["dcn"], "gaps": gaps}, priced

    def _shares(self, modelled: Mapping[str, Floats], priced: Priced) -> Shares:
        """Return what the model expects parts of `_modelled` to consist of."""
        work, gaps = priced.parts_s["compute"], np.maximum(modelled["gaps"], 1e-30)
        streamed = np.maximum(priced.hbm_s - modelled["hbm"], 0.0)
        alone = np.cbrt(np.maximum(work * work * work - streamed * streamed * streamed, 0.0))
        streaming = 1.0 - alone / np.maximum(work, 1e-30)
        return Shares(streaming, priced.parts_s["bubble"] / gaps, (work - modelled["work"]) / gaps)

    @cached_property
    def _launches_matter(self) -> bool:
        efficiencies = self.posterior.values.efficiencies
        silent = efficiencies.with_(layer_s=0.0, moe_layer_s=0.0)
        loud, quiet = (combine(self._base_terms, e).estimate_s for e in (efficiencies, silent))
        return float(loud.reshape(-1)[0] / quiet.reshape(-1)[0]) > 1.005


def at_peak_s(terms: Terms) -> Floats:
    """Return the least time of a step: its model FLOPs at peak, or the traffic of one kind at the peak of its links."""
    times = [terms.dense_s + terms.experts_s + terms.scores_s + terms.head_s]
    for traffic in terms.traffic.values():
        times += [traffic.ici_s, traffic.network_s, traffic.dcn_s]
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*times)))


def foreign_share(measured_s: float, modelled_s: float, sigma: float) -> float:
    """Return the share (0–1) of a measured step that is more likely time of something else than an error of the model.

    sigma: standard deviation of log(measured / modelled) among programs.  Two hypotheses: the model is off by a factor,
    normal on the log scale, or time is added that no part of the model stands for, as likely of any order of magnitude
    from 0.05 to 10 steps (FOREIGN_PRIOR).
    """
    ratio = float(np.log(measured_s / modelled_s))
    if ratio <= 0.0:
        return 0.0
    errs = float(np.exp(-0.5 * (ratio / sigma) ** 2) / (sigma * np.sqrt(2.0 * np.pi)))
    added = float(
        np.exp(ratio) / (max(np.expm1(ratio), FOREIGN_RANGE[0]) * np.log(FOREIGN_RANGE[1] / FOREIGN_RANGE[0]))
    )
    chance = FOREIGN_PRIOR * added / (FOREIGN_PRIOR * added + (1.0 - FOREIGN_PRIOR) * errs)
    return chance * (1.0 - modelled_s / measured_s)


def calibrate(
    config: ExperimentConfig,
    observation: Observation,
    efficiencies: Efficiencies | EfficiencyTable | None = None,
    *,
    informed: Sequence[Informed] | None = None,
    confidence: Confidence | None = None,
    stand_in: bool = False,
) -> Calibration:
    """Calibration of a run from what was measured of it: parts, or the step time alone.

    config: the baseline; model, batch and sequence length may be absent.  informed: what the profile may move (default:
    `posterior.INFORMED`).  Raises ValueError where nothing was measured, ConfigError for a chip that is not known.
    """
    if not observation.step_time_s and not any(value > 0 for value in observation.parts_s.values()):
        raise ValueError("the observation contains no measured part to calibrate with")
    observation = observation.within_step()
    table = load_efficiencies() if efficiencies is None else efficiencies
    if isinstance(table, EfficiencyTable):
        table = table.for_config(config)
    filled, assumed = fill_in(config, observation, table)
    terms = step_terms(from_config(filled))
    base = combine(terms, table)
    unit_s = 1.0
    if not observation.step_time_s:
        unit_s = float(base.estimate_s.reshape(-1)[0]) / observation.measured_s
    foreign_s = 0.0
    if not any(value > 0 for value in observation.parts_s.values()):
        spread = float(np.log(base.high80_s / base.low80_s).reshape(-1)[0]) / (2.0 * Z80)
        seen_s, modelled_s = observation.measured_s, float(base.estimate_s.reshape(-1)[0])
        foreign_s = seen_s * foreign_share(seen_s, modelled_s, float(np.clip(spread, *MODEL_ERROR)))
    bars, unplaced = by_group(filled.mesh, observation, base)
    equations = equations_of(filled.mesh, observation, base, unit_s, foreign_s)
    learnt, is_assumed = confidence or shipped(), "model" in assumed
    calibration = Calibration(
        baseline=filled,
        observation=observation,
        assumed=assumed,
        posterior=solve(informed_by(table, is_assumed, informed), terms, equations),
        group_s=bars,
        unplaced_s=unplaced,
        unit_s=unit_s,
        foreign_s=foreign_s,
        confidence=learnt.where_assumed() if is_assumed else learnt,
        stand_in=stand_in,
    )
    if is_assumed or calibration.disagreement is None:
        return calibration
    # Facts that the profile contradicts are believed no further than assumed ones.
    posterior = solve(informed_by(table, True, informed), terms, equations)
    return replace(calibration, posterior=posterior, confidence=learnt.where_assumed())


def _total(parts: Mapping[str, Floats]) -> Floats:
    return np.maximum(sum(parts.values(), np.zeros(1)), 1e-12)


def _along_first(values: Mapping[str, Any], points: slice, dimensions: int) -> dict[str, Any]:
    """Those of the arrays over points that are at these points, followed by so many dimensions of candidates."""
    return {
        name: value[points].reshape(-1, *[1] * dimensions)
        for name, value in values.items()
        if isinstance(value, np.ndarray) and value.ndim == 1
    }


def _talks(name: str, terms: Terms) -> Floats:
    """1 where a part's group of axes has more than one chip, or where it is no collective of one group."""
    traffic = terms.traffic.get(name.removeprefix("ici:"))
    if traffic is None or not name.startswith("ici:"):
        return np.ones(1)
    return np.where(traffic.ranks > 1, 1.0, 0.0)


def _with_remat(workload: Workload, remat: np.ndarray) -> Workload:
    """The same under another policy, an index into REMAT."""
    return replace(workload, training=replace(workload.training, remat=remat))


def _per_step_tokens(workload: Workload) -> Floats:
    return np.asarray(workload.training.global_batch * workload.training.seq_len)


def same_training(workload: Workload, base: Workload) -> np.ndarray:
    """Whether every setting of the training, precision and states of the optimizer included, is that of `base`."""
    mine, theirs = workload.training, base.training
    pairs = [(getattr(mine, field.name), getattr(theirs, field.name)) for field in fields(mine)]
    # What neither says, such as the year of the software, is not a number on both sides.
    # Precisions of eight bits and fewer differ in the peak alone.
    pairs.append((workload.chip.peak, base.chip.peak))
    return np.asarray(reduce(np.logical_and, [(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in pairs]))
