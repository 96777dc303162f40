"""The prices of candidates as proposals state them, and how candidates are ranked: gain against what could go wrong.

`price`: the calibration's prices, one entry per candidate.  `rank`: `utility = P · gain − (1 − P) · failed_trial`, in
logarithms of time per token, with P the probability that a candidate runs at all and the gain in *expected* time, which
is less by half the variance of its logarithm; where the model is not known, a gain is discounted with every step away
from the current configuration.  The weights are learnt from measured outcomes (ranking.toml,
docs/accuracy-proposals.md); none of the terms knows an experiment."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import hypot

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from experiments.step_profile import PROFILE, StepProfile
from history.effects import FlagEffect
from history.moves import ROLES
from perfmodel.calibration import Prices
from perfmodel.catalogue import load_catalogue
from perfmodel.confidence import Confidence
from perfmodel.config import BATCH_ROLES, ExperimentConfig, Mesh, missing_facts
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import Evidence, step_times_s, transfer_spread
from perfmodel.workload import GROUPS
from proposals.candidate import Candidate, candidate
from proposals.plan import Memory, Predicted, Range, Rejected
from proposals.proposer.precedents import Library, Support
from proposals.proposer.space import CHANGE_KINDS, Candidates

Floats = npt.NDArray[np.float64]


def price(c: Candidates, evidence: Evidence, effects: Sequence[FlagEffect | None]) -> Prices:
    """Price every candidate under the evidence: one entry each.  effects: measured, of the flags of each change."""
    assert evidence.calibration is not None
    mesh, flags, spreads = c.config.mesh.to_json(), c.config.training.xla_flags, []
    for change, effect in zip(c.changes, effects, strict=True):
        unlike = {**change, "xla_flags": flags} if effect else change  # measured flags bring a spread of their own
        spread = transfer_spread(candidate(c.config, Candidate(mesh, unlike)), evidence)
        spreads.append(hypot(spread, effect.sigma) if effect else spread)
    transfer = np.array(spreads)[c.change_of]
    prices = evidence.calibration.price_workload(c.work_of(np.arange(len(c))), c.doublings(), transfer)
    if not any(effects):
        return prices
    ratios = np.array([effect.ratio if effect else 1.0 for effect in effects])[c.change_of]
    parts = {name: seconds * ratios for name, seconds in prices.parts_s.items()}
    return replace(prices, step_time_s=prices.step_time_s * ratios, speedup=prices.speedup / ratios, parts_s=parts)


def fastest(c: Candidates, evidence: Evidence, count: int) -> Candidates:
    """Return so many candidates of least time per token, and the current configuration."""
    if len(c) <= count:
        return c
    times = c.flat(step_times_s(c.config, c.work, c.spread(c.mesh_doublings), evidence)) / c.tokens_ratio
    return c.take(np.union1d(np.argpartition(times, count)[:count], [c.baseline]))


def gains(prices: Prices) -> Floats:
    """Return the log of the speed-up per token."""
    return np.log(prices.speedup)


def confidence_of(evidence: Evidence, diagnosis: Diagnosis) -> Confidence:
    """Return how far gains were measured to come true: less where the step waits for input, or for the host where that
    is the verdict."""
    assert evidence.calibration is not None
    parts = diagnosis.breakdown_share
    share = parts.get("input", 0.0) + (parts.get("host", 0.0) if diagnosis.bottleneck.primary == "host" else 0.0)
    return evidence.calibration.confidence.where_chips_wait(share)


def exposed_s(prices: Prices, candidates: Candidates) -> float:
    """Return the exposed communication of the current configuration, per step."""
    named = (values for name, values in prices.parts_s.items() if name.startswith("ici") or name == "dcn")
    return float(sum(named, np.zeros(len(candidates)))[candidates.baseline])


def by_axis(parts: dict[str, float], config: ExperimentConfig, mesh: Mesh) -> dict[str, float]:
    """Parts with `ici:<axis>` in the user's axis names; a group over several axes is listed under their joint name."""
    seconds_by_axis: dict[str, float] = {}
    for name, seconds in parts.items():
        key = name
        if name.startswith("ici:"):
            axes = axes_of_group(name.removeprefix("ici:"), config, mesh)
            key = "ici:" + "+".join(axes) if axes else "ici"
        seconds_by_axis[key] = seconds_by_axis.get(key, 0.0) + seconds
    return seconds_by_axis


def axes_of_group(group: str, config: ExperimentConfig, mesh: Mesh) -> list[str]:
    """The axes of a mesh, larger than one, that communicate as this group."""
    members = GROUPS[group]
    return [axis for axis, size in mesh.ici if size > 1 and config.mesh.role(axis) in members]


def as_measured(profile: StepProfile, diagnosis: Diagnosis, baseline: Predicted) -> Predicted:
    """The baseline's bars are what was measured, not what the model makes of it."""
    if profile.step_time_s is None or not diagnosis.breakdown_s:
        return baseline
    step = baseline.step_time_s.estimate if baseline.step_time_s else profile.step_time_s
    exact = Range(lower=step, estimate=step, upper=step, low80=step, high80=step)
    # Without a profile the bars are predicted, by the same groups of axes as the proposals'.
    parts = diagnosis.breakdown_s if profile.basis == PROFILE else baseline.breakdown_s
    return replace(
        baseline, step_time_s=exact, breakdown_s=dict(parts), speedup=1.0, speedup_low80=1.0, speedup_high80=1.0
    )


@dataclass(frozen=True)
class Weights:
    """Hold what candidates are weighed by.

    discount: share of a predicted gain that is not counted on where the model is not known, so that terms are scaled
    and not computed, per step: each doubling of an axis and each training key changed.  failed_trial: what a
    trial costs that does not run, in logarithms of time per token.  simplify: share of the utility that may be given up
    for fewer changes (`choose`).
    """

    discount: float
    failed_trial: float
    simplify: float


@cache
def shipped_weights() -> Weights:
    """The fit on the measured sweeps, ranking.toml."""
    data = tomllib.loads(files("proposals.proposer").joinpath("ranking.toml").read_text("utf-8"))
    return Weights(**data["ranking"])


@dataclass(frozen=True)
class Ranked:
    """Arrays over the candidates.  gain, sigma: with what was measured of the same change; runs: probability that it
    runs; faster: that it runs and the step gets faster per token; utility: what they are ranked by; support: what
    precedents say; confidence: the basis of `faster`."""

    gain: Floats
    sigma: Floats
    runs: Floats
    faster: Floats
    utility: Floats
    support: Support
    confidence: Confidence

    def faster_by(self, worth: float) -> Floats:
        """Probability that each runs and gains more than so much, in logarithms of time per token."""
        return self.runs * self.confidence.probability(self.gain, self.sigma, worth=worth)

    def counts_measured(self, index: int) -> bool:
        """Return True if `faster` counts measured runs of the same change."""
        return bool(np.isfinite(self.support.spread[index]))


def rank(
    c: Candidates,
    prices: Prices,
    library: Library,
    confidence: Confidence,
    weights: Weights | None = None,
    effects: Sequence[FlagEffect | None] = (),
) -> Ranked:
    """weights: default the shipped fit.  effects: measured, of the flags of each change."""
    said = _precedents(c, library)
    gain, sigma = drawn(gains(prices), prices.sigma, said.measured, said.spread)
    runs = _heads(c) * c.probability_fits * said.runs
    if c.posterior.ran:  # flags alone leave memory and mesh as they ran
        alone = c.changes_kind("xla_flags") & ((c.changed != 0).sum(axis=1) == 1) & (c.mesh_of == c.home)
        runs = np.where(alone, 1.0, runs)
    if any(effects):  # of the recorded runs with all of these flags, and one more that runs, those that did
        tried = [(1 + each.whole, len(each.failed)) if each else (1, 0) for each in effects]
        runs = runs * np.array([ran / (ran + failed) for ran, failed in tried])[c.change_of]
    faster = runs * confidence.probability(gain, sigma)
    worth = utility(c, gain - sigma**2 / 2.0, runs, weights or shipped_weights())
    return Ranked(gain, sigma, runs, faster, worth, said, confidence)


@dataclass(frozen=True)
class PricedCandidates:
    """Candidates of one run, priced and ranked.

    effects: measured, of the flags of each change.  timed: whether the profile has a step time.
    rejected: the nearest of the meshes that were left out; considered: how many meshes there were; priced: how many
    candidates.
    """

    candidates: Candidates
    prices: Prices
    ranked: Ranked
    evidence: Evidence
    effects: Sequence[FlagEffect | None]
    timed: bool
    rejected: Sequence[Rejected] = ()
    considered: int = 0
    priced: int = 0

    def predicted(self, index: int) -> Predicted:
        """Return the contract's numbers of one candidate, the same as `price.predict` gives.  What precedents say of it
        only ranks it and moves its confidence."""
        c, prices = self.candidates, self.prices
        step = Range(**prices.range_at(index))
        if not self.evidence.is_measured:  # without evidence the interval is that of the model alone
            alone = predict_alone(c.configured(index)).step_time_s
            effect = self.effects[int(c.change_of[index])]
            ratio = effect.ratio if effect else 1.0
            step = Range(**{name: seconds * ratio for name, seconds in alone.items()}) if alone else step
        parts = {name: float(values[index]) for name, values in prices.parts_s.items() if values[index] > 0}
        used = {name: float(value[index]) for name, value in c.used.parts().items()}
        assert self.evidence.calibration is not None
        assumed = self.evidence.calibration.assumed
        return Predicted(
            step_time_s=step if self.timed else None,
            speedup=float(prices.speedup[index]),
            speedup_low80=float(prices.speedup_low80[index]),
            speedup_high80=float(prices.speedup_high80[index]),
            sigma=float(prices.sigma[index]),
            hbm_per_chip_bytes=Memory(**used) if not missing_facts(c.config) else None,
            breakdown_s=by_axis(parts, c.config, c.mesh(index)) if self.timed else {},
            missing=assumed if self.timed else (*assumed, "step_time"),
        )


def utility(c: Candidates, gain: Floats, runs: Floats, w: Weights) -> Floats:
    """Return the utility that candidates are ranked by; 0 for the current configuration.  gain: in expected time."""
    discount = w.discount if c.config.model is None else 0.0
    trusted = np.where(gain > 0, np.maximum(0.0, 1.0 - discount * steps(c)), 1.0)
    expected = runs * gain * trusted - (1.0 - runs) * w.failed_trial
    return np.where(np.arange(len(c)) == c.baseline, 0.0, expected)


def steps(c: Candidates) -> Floats:
    """How far each candidate is from the current configuration: doublings of axes, and one for each training key that
    changes."""
    return np.asarray(c.doublings() + (c.changed != 0).sum(axis=1))


def _precedents(c: Candidates, library: Library) -> Support:
    config = c.config
    sizes = np.log2(np.column_stack([c.role(*(("data", "fsdp") if r == "data" else (r,))) for r in ROLES]))
    columns = {kind: c.changed[:, number] for number, kind in enumerate(CHANGE_KINDS)}
    micro = columns["micro_batch"] - columns["grad_accum"]
    if not config.training.micro_batch and config.training.global_batch:
        # The batch that a shard works on at once is what the mesh leaves of it.
        shards = np.log2(c.role(*BATCH_ROLES))
        micro = micro + columns["global_batch"] - (shards - shards[c.baseline])
    none = np.zeros(len(c))
    keys = (columns["global_batch"], micro, columns["remat"], columns["weight_sharding"], none, columns["xla_flags"])
    moved = np.column_stack([sizes - sizes[c.baseline], *keys])
    moved[columns["virtual_stages"] != 0] = np.nan  # no move of a record has them
    policies = [change.get("remat", config.training.remat) for change in c.changes]
    full = None if missing_facts(config) else c.used.total / c.used.capacity
    return library.support(moved, sizes, [policies[number] for number in c.change_of], full)


def drawn(gain: Floats, sigma: Floats, measured: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Predicted log gain and its standard deviation sigma, drawn towards a measured one where the model is unsure.

    spread: standard deviation of the measured one, infinite where there is none.
    """
    weight = sigma**2 / (sigma**2 + spread**2)
    return gain + weight * (measured - gain), sigma * np.sqrt(1.0 - weight)


def _heads(c: Candidates) -> Floats:
    if c.config.model is not None:
        return np.ones(len(c))
    shards = c.role("model")
    known = np.mod(shards[c.baseline], shards) == 0
    return np.where(known, 1.0, np.array([heads_divide(int(n)) for n in shards]))


@cache
def heads_divide(shards: int) -> float:
    """Share of the catalogue's models whose heads, KV heads and MLP divide by so many tensor shards."""
    shapes = [entry.shape for entry in load_catalogue().values()]
    return sum(
        s.heads % shards == 0 and s.d_ff % shards == 0 and (s.attention == "mla" or s.kv_heads % shards == 0)
        for s in shapes
    ) / len(shapes)
