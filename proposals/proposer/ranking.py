"""How candidates are ranked: expected gain against what could go wrong, each judgement a named, documented term.

`utility = P · (gain − CAUTION·sigma) − (1 − P) · FAILED_TRIAL − costs`, in logarithms of time per token, with P the
probability that the candidate runs at all.  None of the terms knows an experiment; all hold for any mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel import accounting
from perfmodel.catalogue import load_catalogue
from perfmodel.config import ExperimentConfig
from perfmodel.step_time import missing_facts
from proposals.proposer.changes import RECOMPUTES
from proposals.proposer.confidence import Confidence
from proposals.proposer.likeness import Library, Situation, Support
from proposals.proposer.precedents import ROLES, Precedent
from proposals.proposer.pricing import Prices
from proposals.proposer.space import CHANGE_KINDS, Candidates

Floats = npt.NDArray[np.float64]

#: Standard deviations given away for safety.
CAUTION = 0.6
#: What a trial costs that does not run, as a share of a step's time.
FAILED_TRIAL = 0.05
#: Each axis moved beyond the two that any exchange needs: the result no longer says which move did it.  These costs are
#: small where the model is known (True), since then every term of a candidate was computed.
COST_PER_FURTHER_AXIS = {True: 0.003, False: 0.02}
#: A mesh whose axes cut a torus dimension needs split physical axes and shares its wires between rings.
COST_OF_SPLIT = 0.015
#: Each doubling of an axis that the run did not have: nothing in the profile says what its collectives cost.
COST_PER_FRESH_DOUBLING = {True: 0.003, False: 0.06}
#: A step that leaves the same resource in charge needs another step after it.
COST_OF_SAME_BOTTLENECK = 0.05
#: Each doubling away from what ran: layouts and schedules to tune again, and ground fewer runs have covered.  More
#: where the model's shape is unknown, since then the terms that change are extrapolated too.
COST_PER_DOUBLING = {True: 0.003, False: 0.03}
#: Each doubling of replicated copies where axes could shard the weights instead.
COST_PER_COPY = 0.05
#: Of fitting, per doubling of the weights a chip holds, where neither peak memory nor the model is known.
FITS_PER_DOUBLING = 0.85
#: Further changes, each counted like an axis beyond the two: what they cost to try, and that more moves at once.  A
#: batch changes how training goes, which no step time shows.
COST_PER_CHANGE = {
    "global_batch": 0.05, "grad_accum": 0.005, "micro_batch": 0.005, "remat": 0.005, "weight_sharding": 0.01,
    "xla_flags": 0.0,
}  # fmt: skip
#: Activations in host memory pay where a chip's own is short: the link must keep up, which no profile without it shows.
COST_OF_OFFLOAD = 0.05
#: Computed memory errs by some ten percent up and down: from this share of the capacity on, what needs more than what
#: ran is less sure to run; over the next OVERFLOW of the capacity the chance falls to FITS_LEAST.
FULL_FROM, OVERFLOW, FITS_LEAST = 0.95, 0.35, 0.05
#: Spread of what a precedent says, before its likeness is counted.
PRECEDENT_SPREAD = 0.15


@dataclass(frozen=True)
class Ranked:
    """Arrays over the candidates.  gain, sigma: with precedents; runs: probability that it runs; faster: that it runs
    and the step gets faster per token; utility: what they are ranked by; support: what precedents say; confidence: what
    `faster` rests on."""

    gain: Floats
    sigma: Floats
    runs: Floats
    faster: Floats
    utility: Floats
    support: Support
    confidence: Confidence


def rank(
    candidates: Candidates,
    prices: Prices,
    profile: StepProfile,
    diagnosis: Diagnosis,
    library: Library,
) -> Ranked:
    c = candidates
    known = c.config.model is not None
    said = _precedents(c, library)
    gain, sigma = _drawn(prices, said)
    runs = _heads(c) * _fits(c, prices, profile) * said.runs
    distance = c.doublings()
    newly_split = c.split & ~c.split[c.baseline]
    moved = c.axes_moved() + (c.changed != 0).sum(axis=1)
    costs = COST_PER_FURTHER_AXIS[known] * np.maximum(moved - 2, 0) + COST_OF_SPLIT * newly_split
    costs = costs + COST_PER_DOUBLING[known] * distance
    costs = costs + COST_PER_FRESH_DOUBLING[known] * c.fresh_doublings()
    costs = costs + np.abs(c.changed) @ np.array([COST_PER_CHANGE[kind] for kind in CHANGE_KINDS])
    costs = costs + COST_OF_OFFLOAD * np.array([change.get("remat") == "offload" for change in c.changes])[c.change_of]
    copies = c.role("replica") / c.role("replica")[c.baseline]
    costs = costs + COST_PER_COPY * np.maximum(0.0, np.log2(copies))
    costs = costs + COST_OF_SAME_BOTTLENECK * _same_bottleneck(c, prices, diagnosis)
    utility = runs * (gain - CAUTION * sigma) - (1.0 - runs) * FAILED_TRIAL - costs
    utility[c.baseline] = 0.0
    faster = runs * prices.confidence.probability(gain, sigma)
    return Ranked(gain, sigma, runs, faster, utility, said, prices.confidence)


def library_for(config: ExperimentConfig, diagnosis: Diagnosis, precedents: Sequence[Precedent]) -> Library:
    """Precedents made ready for the run at hand."""
    parameters = accounting.parameters(config.model).total if config.model is not None else None
    hardware = config.hardware
    return Library(precedents, Situation(hardware.chip, hardware.chips, diagnosis.bottleneck.primary, parameters))


def _precedents(c: Candidates, library: Library) -> Support:
    config = c.config
    sizes = np.log2(np.column_stack([c.role(*(("data", "fsdp") if r == "data" else (r,))) for r in ROLES]))
    columns = {kind: c.changed[:, number] for number, kind in enumerate(CHANGE_KINDS)}
    # Smaller micro-batches are more of them.
    splits = columns["grad_accum"] - columns["micro_batch"]
    keys = (columns["global_batch"], splits, columns["remat"], columns["weight_sharding"], columns["xla_flags"])
    moved = np.column_stack([sizes - sizes[c.baseline], *keys])
    policies = np.array([RECOMPUTES[change.get("remat", config.training.remat)] for change in c.changes])
    full = None if missing_facts(config) else c.used.total / c.used.capacity
    return library.support(moved, sizes, policies[c.change_of].astype(np.float64), full)


def _drawn(prices: Prices, said: Support) -> tuple[Floats, Floats]:
    """Gain and spread drawn towards what alike precedents had: by their likeness, and as far as the model is unsure."""
    variance = prices.sigma**2
    doubt = PRECEDENT_SPREAD**2 + said.spread**2
    weight = said.likeness * variance / (variance + doubt)
    return prices.gain + weight * (said.said - prices.gain), prices.sigma * np.sqrt(1.0 - weight)


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


def _room(filled: Floats) -> Floats:
    """Probability that memory which is computed to fill so much of a chip fits."""
    return np.asarray(np.clip((FULL_FROM + OVERFLOW - filled) / OVERFLOW, FITS_LEAST, 1.0))


def _fits(c: Candidates, prices: Prices, profile: StepProfile) -> Floats:
    """Probability that a candidate fits; 1 for what needs no more than what ran."""
    peak, capacity = profile.memory.peak_bytes, profile.memory.capacity_bytes
    high = prices.memory_high_bytes
    if not missing_facts(c.config):
        total = c.used.total
        # What was measured beyond what the model knows of is there on every mesh.
        if not peak:
            filled = total / c.used.capacity
            return prices.confidence.fits(filled, filled[c.baseline])
        beyond = max(0.0, peak - float(total[c.baseline]))
        return np.where(total <= total[c.baseline], 1.0, _room((total + beyond) / c.used.capacity))
    if peak and capacity and high is not None:
        return _room(high / capacity)
    held = c.role("model") * c.role("pipeline")
    growth = np.maximum(0.0, np.log2(held[c.baseline] / held))
    copies = np.maximum(0.0, np.log2(c.role("replica") / c.role("replica")[c.baseline]))
    return np.asarray(FITS_PER_DOUBLING ** (growth + copies))


def _same_bottleneck(c: Candidates, prices: Prices, diagnosis: Diagnosis) -> npt.NDArray[np.bool_]:
    """Whether HBM, where it is the verdict, would still take the most time."""
    if diagnosis.bottleneck.primary != "memory":
        return np.zeros(len(c), dtype=bool)
    traffic = sum((v for k, v in prices.parts_s.items() if k.startswith("ici") or k == "dcn"), np.zeros(len(c)))
    ratio = prices.parts_s["hbm"] / prices.parts_s["hbm"][c.baseline]
    return np.asarray((prices.parts_s["hbm"] > prices.parts_s["compute"] + traffic) & (ratio > 0.4))
