"""What proposals are compared with: one share of peak, and a regressor that knows no physics beyond its features.

Each is fitted without the workload that it ranks, and leaves out what the rules of legality and memory forbid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingRegressor

from evaluation import held_out
from evaluation.held_out import FOLDINGS
from evaluation.sweep_groups import Group
from perfmodel import memory
from perfmodel.terms import step_terms
from perfmodel.workload import SHARDING

Floats = npt.NDArray[np.float64]


def fold_of(groups: Sequence[Group]) -> Mapping[str, int]:
    """Fold by workload: those of the time model's fit (`evaluation.held_out`)."""
    count = FOLDINGS["workload"][1]
    assert count is not None
    return {group.workload: held_out.fold_of(f"{group.source} {group.workload}", count) for group in groups}


def features(group: Group) -> Floats:
    """(runs, features): logs of ideal compute, bubble, launches, work per launch, collectives by axis, degrees, tokens
    per micro-batch, share of memory, and which program it is."""
    work = group.work
    terms = step_terms(work)
    used = memory.per_chip(work)
    mesh, train = work.mesh, work.training
    work_s = terms.dense_s + terms.experts_s + terms.scores_s + terms.head_s
    tensor, weights, pipeline = (terms.traffic[name] for name in ("model", "weights", "pipeline"))
    columns = [
        np.log(work_s),
        np.log1p(terms.bubble),
        np.log(terms.layer_passes),
        np.log(work_s / terms.layer_passes),
        *(np.log(np.maximum(each.ici_s + each.dcn_s, 1e-6)) for each in (tensor, weights, pipeline)),
        *(np.log2(size) for size in (mesh.model, mesh.pipeline, mesh.data * mesh.fsdp, mesh.seq)),
        np.log(terms.rows),
        used.total / used.capacity,
        (train.sharding != SHARDING.index("none")).astype(float),
        train.profile.astype(float),
        train.micro_batches,
    ]
    return np.column_stack([np.broadcast_to(np.asarray(column, dtype=float), len(group)) for column in columns])


def naive_s(groups: Sequence[Group]) -> list[Floats]:
    """One share of peak per chip and precision: the median of the runs of other folds."""
    folds = fold_of(groups)
    terms = [step_terms(group.work) for group in groups]
    ideal = [np.asarray(t.tokens_per_chip * t.work.model.model_flops / t.work.chip.peak) for t in terms]
    ideal = [np.broadcast_to(each, len(group)) for each, group in zip(ideal, groups, strict=True)]
    predicted = []
    for group, own in zip(groups, ideal, strict=True):
        shares = np.concatenate(
            [
                (each / other.time_s)[list(other.starts)]
                for each, other in zip(ideal, groups, strict=True)
                if folds[other.workload] != folds[group.workload] and _machine(other) == _machine(group)
            ]
            or [np.array([0.4])]
        )
        predicted.append(np.asarray(own / np.median(shares)))
    return predicted


def _machine(group: Group) -> tuple[str, str]:
    config = group.configs[0]
    return config.hardware.chip, config.training.precision


def regressor_s(groups: Sequence[Group]) -> list[Floats]:
    """Gradient boosting of log(time / ideal compute) over the features, fitted on all runs of the other folds."""
    folds = fold_of(groups)
    columns = [features(group) for group in groups]
    predicted: list[Floats] = [np.zeros(len(group)) for group in groups]
    for fold in sorted(set(folds.values())):
        train = [
            (x[list(group.starts)], np.log(group.time_s)[list(group.starts)])
            for x, group in zip(columns, groups, strict=True)
            if folds[group.workload] != fold
        ]
        x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
        model = HistGradientBoostingRegressor(max_iter=200, random_state=0)
        model.fit(x, y - x[:, 0])
        for number, group in enumerate(groups):
            if folds[group.workload] == fold:
                predicted[number] = np.exp(model.predict(columns[number]) + columns[number][:, 0])
    return predicted
