"""Measured pairs as the Proposer would have predicted them: gain and spread of each, beside what was measured.

Of a published run only the step time is known, so its parts are taken as the model has them, scaled to the measured
step: a profile that shows every part where the model expects it.  A profile that shows where the time really goes
predicts better than that; by how much no published pair can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from evaluation.pairs import MeasuredRun, Pair, log_gain
from perfmodel.accuracy import HEADLINE, foldings
from perfmodel.calibration import Observation, calibrate, mesh_distance
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.fit import FOLD_STEPS, problem, solve, table
from perfmodel.published import load_published
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import GROUPS, chip_of, from_config, stack
from proposals.proposer.pricing import SPREAD_PER_DOUBLING_KNOWN, SPREAD_PER_DOUBLING_UNKNOWN

Floats = npt.NDArray[np.float64]

#: What the model calls a part, and what a profile does.
_NAMES = {"bubble": "idle", "overhead": "other"}


@dataclass(frozen=True)
class Predicted:
    """A pair in the direction that the Proposer would take, from the run predicted slower to the one predicted faster.

    gain, sigma: predicted log gain per token and the model's own spread; measured: log gain; weight: see `weights`.
    """

    pair: Pair
    before: MeasuredRun
    after: MeasuredRun
    gain: float
    sigma: float
    measured: float
    weight: float


@cache
def held_out_tables(names: frozenset[str]) -> Mapping[str, EfficiencyTable]:
    """Efficiencies fitted without the rows of one pair of model and chip, for each name of such a pair."""
    runs = load_published().runs
    p = problem(runs)
    everything = np.ones(len(runs), dtype=bool)
    start = solve(p, everything)
    groups = np.array(foldings(runs)[HEADLINE])
    default = load_efficiencies().tables.get("default", {})
    found = {}
    for name in sorted(names):
        x = solve(p, groups != name, start, FOLD_STEPS)
        found[name] = EfficiencyTable({"default": default, **table(p, x, p.log_error(x))}, {}, {})
    return found


def observed_parts(run: MeasuredRun, efficiencies: Efficiencies) -> Observation:
    """The step of a run whose time alone was measured, in the parts that the model gives it."""
    config = run.config
    priced = combine(step_terms(from_config(config)), efficiencies)
    scale = run.step_time_s / _number(priced.estimate_s)
    parts: dict[str, float] = {}
    for name, seconds in priced.parts_s.items():
        key = _NAMES.get(name, name)
        if name.startswith("ici:"):
            members = GROUPS[name.removeprefix("ici:")]
            axes = [axis for axis, size in config.mesh.ici if size > 1 and config.mesh.role(axis) in members]
            key = "ici:" + "+".join(axes) if axes else "ici"
        if (value := _number(seconds) * scale) > 0:
            parts[key] = parts.get(key, 0.0) + value
    return Observation(step_time_s=run.step_time_s, parts_s=parts)


def predict_pairs(pairs: Sequence[Pair], *, known: bool = True) -> tuple[Predicted, ...]:
    """Every pair predicted, by efficiencies that saw none of its rows.

    known: False hides the model, the batch and the sequence length from the prediction, as in a profile whose
    configuration does not name them.
    """
    tables = held_out_tables(frozenset(pair.held_out for pair in pairs if pair.held_out))
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.source, pair.group].append(pair)
    weight = weights(pairs)
    found: list[Predicted] = []
    for members in groups.values():
        efficiencies = tables.get(members[0].held_out) or load_efficiencies()
        runs = list({id(run): run for pair in members for run in (pair.one, pair.other)}.values())
        gains, spreads = _all_ways(runs, efficiencies, known)
        place = {id(run): i for i, run in enumerate(runs)}
        for pair in members:
            i, j = place[id(pair.one)], place[id(pair.other)]
            if gains[j, i] > gains[i, j]:
                i, j = j, i
            if gains[i, j] <= 0 or spreads[i, j] <= 0:
                continue  # nothing that would be proposed
            measured = log_gain(runs[i], runs[j])
            share = weight[pair.family] * pair.weight
            found.append(Predicted(pair, runs[i], runs[j], float(gains[i, j]), float(spreads[i, j]), measured, share))
    return tuple(found)


def weights(pairs: Sequence[Pair]) -> Mapping[str, float]:
    """Factor on the weight of every pair of a family: a family of n comparisons counts as √n, since its runs share a
    program, a cluster and a model."""
    total: dict[str, float] = defaultdict(float)
    for pair in pairs:
        total[pair.family] += pair.weight
    return {family: value**-0.5 for family, value in total.items()}


def _all_ways(runs: Sequence[MeasuredRun], efficiencies: EfficiencyTable, known: bool) -> tuple[Floats, Floats]:
    """Predicted log gain and its spread from every run to every other: (runs, runs)."""
    gains, spreads = np.zeros((len(runs), len(runs))), np.zeros((len(runs), len(runs)))
    configs = [run.config if known else _hidden(run) for run in runs]
    work = stack([from_config(config) for config in configs]) if known else None
    distance = np.array([[mesh_distance(a.mesh, b.mesh) for b in configs] for a in configs])
    for i, run in enumerate(runs):
        config = run.config
        resolved = efficiencies.resolve(chip_of(config.hardware), config.training.precision, config.model)
        calibration = calibrate(configs[i], observed_parts(run, resolved), efficiencies)
        prices = calibration.price(configs) if work is None else calibration.price_workload(work, distance[i])
        per_doubling = SPREAD_PER_DOUBLING_KNOWN if known else SPREAD_PER_DOUBLING_UNKNOWN
        gains[i] = np.log(prices.speedup)
        spreads[i] = np.sqrt(prices.sigma**2 + per_doubling**2 * distance[i])
    return gains, spreads


def _hidden(run: MeasuredRun) -> ExperimentConfig:
    training = replace(run.config.training, global_batch=None, seq_len=None)
    return replace(run.config, model=None, training=training)


def _number(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
