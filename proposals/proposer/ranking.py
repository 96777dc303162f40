"""How candidates are ranked: expected gain against what could go wrong.

`utility = P · gain − (1 − P) · failed_trial`, in logarithms of time per token, with P the probability that a candidate
runs at all and the gain in *expected* time, which is less by half the variance of its logarithm; where the model is not
known, a gain is discounted with every step away from the current configuration.
The weights are learnt from measured outcomes (ranking.toml, docs/accuracy-proposals.md); none of the terms knows an
experiment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from history.moves import ROLES
from perfmodel.catalogue import load_catalogue
from perfmodel.confidence import Confidence
from perfmodel.config import BATCH_ROLES, ExperimentConfig, missing_facts
from proposals.proposer.precedents import Precedent, situation
from proposals.proposer.pricing import ProposalPrices
from proposals.proposer.similarity import Library, Support
from proposals.proposer.space import CHANGE_KINDS, Candidates

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """What candidates are weighed by.

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


def rank(
    candidates: Candidates,
    prices: ProposalPrices,
    library: Library,
    weights: Weights | None = None,
) -> Ranked:
    """weights: default the shipped fit."""
    c, w = candidates, weights or shipped_weights()
    said = _precedents(c, library)
    gain, sigma = drawn(prices.gain, prices.sigma, said.measured, said.spread)
    runs = _heads(c) * _fits(c) * said.runs
    faster = runs * prices.confidence.probability(gain, sigma)
    return Ranked(gain, sigma, runs, faster, utility(c, gain - sigma**2 / 2.0, runs, w), said, prices.confidence)


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


def library_for(config: ExperimentConfig, diagnosis: Diagnosis, precedents: Sequence[Precedent]) -> Library:
    """Precedents made ready for the run at hand."""
    return Library(precedents, situation(config, diagnosis))


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


def _fits(c: Candidates) -> Floats:
    """Return the probability that each candidate fits; 1 where neither the model nor a peak says anything."""
    if missing_facts(c.config) and not c.posterior.has_peak:
        return np.ones(len(c))
    return c.posterior.probability_fits(c.used)
