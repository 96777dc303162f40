"""How candidates are ranked: expected gain against what could go wrong, each judgement a named, documented term.

`utility = P · (gain − CAUTION·sigma) − (1 − P) · FAILED_TRIAL − costs`, in logarithms of time per token, with P the
probability that the candidate runs at all.  None of the terms knows an experiment; all hold for any mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel.catalogue import load_catalogue
from perfmodel.config import ExperimentConfig
from proposals.proposer.precedents import Precedent, likeness
from proposals.proposer.pricing import Prices
from proposals.proposer.space import Meshes, split_dimensions

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
#: Spread of what a precedent says, before its likeness is counted.
PRECEDENT_SPREAD = 0.15


@dataclass(frozen=True)
class Ranked:
    """Arrays over the meshes.  gain, sigma: with precedents; runs: probability that it runs; faster: that it runs and
    the step gets faster per token; utility: what they are ranked by.  precedent: index into precedents, -1 for none."""

    gain: Floats
    sigma: Floats
    runs: Floats
    faster: Floats
    utility: Floats
    precedent: npt.NDArray[np.int64]
    likeness: Floats
    split: npt.NDArray[np.bool_]


def rank(
    meshes: Meshes,
    prices: Prices,
    config: ExperimentConfig,
    profile: StepProfile,
    diagnosis: Diagnosis,
    precedents: tuple[Precedent, ...],
) -> Ranked:
    gain, sigma, which, like = _with_precedents(meshes, prices, config, diagnosis, precedents)
    distance = meshes.doublings()
    runs = _heads(meshes, config) * _fits(meshes, prices, config, profile)
    split = split_dimensions(meshes)
    newly_split = split & ~split[meshes.baseline]
    costs = (
        COST_PER_FURTHER_AXIS[config.model is not None] * np.maximum(meshes.axes_moved() - 2, 0)
        + COST_OF_SPLIT * newly_split
    )
    costs = costs + COST_PER_DOUBLING[config.model is not None] * distance
    costs = costs + COST_PER_FRESH_DOUBLING[config.model is not None] * _fresh_doublings(meshes)
    copies = meshes.role("replica") / meshes.role("replica")[meshes.baseline]
    costs = costs + COST_PER_COPY * np.maximum(0.0, np.log2(copies))
    costs = costs + COST_OF_SAME_BOTTLENECK * _same_bottleneck(meshes, prices, diagnosis)
    utility = runs * (gain - CAUTION * sigma) - (1.0 - runs) * FAILED_TRIAL - costs
    utility[meshes.baseline] = 0.0
    faster = runs * np.asarray(ndtr(gain / np.maximum(sigma, 1e-9)))
    return Ranked(gain, sigma, runs, faster, utility, which, like, split)


def _with_precedents(
    meshes: Meshes, prices: Prices, config: ExperimentConfig, diagnosis: Diagnosis, precedents: tuple[Precedent, ...]
) -> tuple[Floats, Floats, npt.NDArray[np.int64], Floats]:
    """Gain and spread drawn towards the most alike precedent: by its likeness, and as far as the model is unsure."""
    gain, sigma = prices.gain.copy(), prices.sigma.copy()
    which, best = np.full(len(meshes), -1), np.zeros(len(meshes))
    before, hardware, verdict = config.mesh, config.hardware, diagnosis.bottleneck.primary
    for number, precedent in enumerate(precedents):
        if precedent.bottleneck != verdict:
            continue
        alike = np.array(
            [
                likeness(precedent, hardware.chip, hardware.chips, verdict, before, meshes.mesh(i))
                for i in range(len(meshes))
            ]
        )
        which, best = np.where(alike > best, number, which), np.maximum(alike, best)
    for row in np.flatnonzero(best > 0):
        said = -np.log(precedents[which[row]].time_ratio)
        weight = best[row] * sigma[row] ** 2 / (sigma[row] ** 2 + PRECEDENT_SPREAD**2)
        gain[row] += weight * (said - gain[row])
        sigma[row] *= np.sqrt(1.0 - weight)
    return gain, sigma, which, best


def _fresh_doublings(meshes: Meshes) -> Floats:
    """Doublings of axes that have size 1 in what ran."""
    sizes = meshes.space.sizes
    fresh = sizes[meshes.baseline] == 1
    return np.asarray(np.log2(sizes[:, fresh]).sum(axis=1))


def _heads(meshes: Meshes, config: ExperimentConfig) -> Floats:
    if config.model is not None:
        return np.ones(len(meshes))
    shards = meshes.role("model")
    known = np.mod(shards[meshes.baseline], shards) == 0
    return np.where(known, 1.0, np.array([heads_divide(int(n)) for n in shards]))


@cache
def heads_divide(shards: int) -> float:
    """Share of the catalogue's models whose heads, KV heads and MLP divide by so many tensor shards."""
    shapes = [entry.shape for entry in load_catalogue().values()]
    return sum(
        s.heads % shards == 0 and s.d_ff % shards == 0 and (s.attention == "mla" or s.kv_heads % shards == 0)
        for s in shapes
    ) / len(shapes)


def _fits(meshes: Meshes, prices: Prices, config: ExperimentConfig, profile: StepProfile) -> Floats:
    """Probability that a mesh fits where it could not be computed.  Where it could, the rule `memory` has decided."""
    if prices.memory is not None:
        return np.ones(len(meshes))
    peak, capacity = profile.memory.peak_bytes, profile.memory.capacity_bytes
    if peak and capacity:
        priced = prices.calibration.price_workload(meshes.workload(), meshes.doublings()[:, None, None, None])
        high = priced.memory_high_bytes
        if high is not None:
            used = np.broadcast_to(high, (len(meshes), 1, 1, 1)).reshape(-1) / capacity
            return np.asarray(np.clip((1.3 - used) / 0.35, 0.05, 1.0))
    held = meshes.role("model") * meshes.role("pipeline")
    growth = np.maximum(0.0, np.log2(held[meshes.baseline] / held))
    copies = np.maximum(0.0, np.log2(meshes.role("replica") / meshes.role("replica")[meshes.baseline]))
    return np.asarray(FITS_PER_DOUBLING ** (growth + copies))


def _same_bottleneck(meshes: Meshes, prices: Prices, diagnosis: Diagnosis) -> npt.NDArray[np.bool_]:
    """Whether HBM, where it is the verdict, would still take the most time."""
    if diagnosis.bottleneck.primary != "memory":
        return np.zeros(len(meshes), dtype=bool)
    traffic = sum((v for k, v in prices.parts_s.items() if k.startswith("ici") or k == "dcn"), np.zeros(len(meshes)))
    ratio = prices.parts_s["hbm"] / prices.parts_s["hbm"][meshes.baseline]
    return np.asarray((prices.parts_s["hbm"] > prices.parts_s["compute"] + traffic) & (ratio > 0.4))
