"""Measured pairs as the Proposer would have predicted them: gain and spread of each, beside what was measured.

Of a published run only the step time is known, and it calibrates the prediction of the other.  A profile that shows
where the time really goes predicts better than that; by how much no published pair can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evaluation.measured_pairs import MeasuredRun, Pair, log_gain
from evaluation.time_table import table_without_model
from perfmodel.calibration import calibrate
from perfmodel.config import ExperimentConfig, mesh_distance
from perfmodel.efficiency import EfficiencyTable, load_efficiencies
from perfmodel.observation import Observation
from perfmodel.workload import from_config, stack

Floats = npt.NDArray[np.float64]


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


def predict_pairs(pairs: Sequence[Pair], *, known: bool = True) -> tuple[Predicted, ...]:
    """Every pair predicted, by efficiencies that saw none of its rows.

    known: False hides the model, the batch and the sequence length from the prediction, as in a profile whose
    configuration does not name them.
    """
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.source, pair.group].append(pair)
    weight = weights(pairs)
    predicted: list[Predicted] = []
    for members in groups.values():
        fitted = members[0].source != "optico"
        efficiencies = table_without_model(members[0].one.config) if fitted else load_efficiencies()
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
            predicted.append(
                Predicted(pair, runs[i], runs[j], float(gains[i, j]), float(spreads[i, j]), measured, share)
            )
    return tuple(predicted)


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
        calibration = calibrate(configs[i], Observation(step_time_s=run.step_time_s, parts_s={}), efficiencies)
        prices = calibration.price(configs) if work is None else calibration.price_workload(work, distance[i])
        gains[i] = np.log(prices.speedup)
        spreads[i] = prices.sigma
    return gains, spreads


def _hidden(run: MeasuredRun) -> ExperimentConfig:
    training = replace(run.config.training, global_batch=None, seq_len=None)
    return replace(run.config, model=None, training=training)
