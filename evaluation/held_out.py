"""Predictions of rows that the fit had not seen, by how far they are from what it had seen.

Rows are left out by six rules (FOLDINGS), from single rows to whole programs; what a held-out row is worth is then told
by its actual distance from the rows that were left in (`perfmodel.efficiency`), never by the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from evaluation.fit_time import FOLD_STEPS, Fit, Problem, fitted
from evaluation.time_rows import TimeRow
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import DISTANCES, architecture_key, distance_to, run_keys

Floats = npt.NDArray[np.float64]

#: What is left out together, and in how many folds; None for one fold per value.
FOLDINGS: Mapping[str, tuple[Callable[[TimeRow], str], int | None]] = {
    "row": (lambda row: row.id, 5),
    "configuration": (lambda row: row.configuration, 5),
    "workload": (lambda row: f"{row.source} {row.workload}", 8),
    "model": (lambda row: row.model, 8),
    "architecture": (lambda row: architecture_key(row.shape), None),
    "chip": (lambda row: row.silicon, None),
    "framework": (lambda row: row.profile.name, None),
}


@dataclass(frozen=True)
class HeldOut:
    """Out-of-fold results of rows at one distance; arrays over `index`, positions in the problem's rows.

    log_error: log(estimate / measured).  mode_error: the same against the nearer of stalled and not.  naive_error: of
    the naive model.  smooth_s, stall_s, stall_chance: see `Priced`.
    """

    distance: str
    index: npt.NDArray[np.int64]
    log_error: Floats
    mode_error: Floats
    naive_error: Floats
    smooth_s: Floats
    stall_s: Floats
    stall_chance: Floats
    lower_s: Floats


def fold_of(key: str, folds: int) -> int:
    """Which fold a key falls into, the same on every machine."""
    return int(sha256(key.encode()).hexdigest(), 16) % folds


def folds(rows: Sequence[TimeRow], rule: str) -> list[npt.NDArray[np.bool_]]:
    """Masks of what each fold leaves out."""
    key_of, count = FOLDINGS[rule]
    keys = [key_of(row) for row in rows]
    names = keys if count is None else [str(fold_of(key, count)) for key in keys]
    values = np.array(names)
    masks = [values == name for name in sorted(set(names))]
    return [mask for mask in masks if 0 < mask.sum() < len(rows)]


@dataclass(frozen=True)
class Evaluation:
    """Out-of-fold predictions of one kind of chip, by distance from what was left in and by rule of leaving out."""

    whole: Fit
    by_distance: Mapping[str, HeldOut]
    by_rule: Mapping[str, HeldOut]

    @property
    def rows(self) -> tuple[TimeRow, ...]:
        return self.whole.problem.rows


def held_out(whole: Fit, rules: Sequence[str] = tuple(FOLDINGS)) -> Evaluation:
    """whole: the fit on all rows, where the folds start."""
    p = whole.problem
    near: dict[str, dict[int, tuple[float, ...]]] = {name: {} for name in DISTANCES}
    left: dict[str, dict[int, tuple[float, ...]]] = {}
    for rule in rules:
        for out in folds(p.rows, rule):
            fit = fitted(p, ~out, whole.x, FOLD_STEPS)
            for i, distance, values in _predicted(p, fit, out):
                near[distance].setdefault(i, values)
                left.setdefault(rule, {})[i] = values
    by_distance = {name: _arranged(name, rows) for name, rows in near.items() if rows}
    return Evaluation(whole, by_distance, {name: _arranged(name, rows) for name, rows in left.items()})


def summarise(configs: Iterable[ExperimentConfig]) -> dict[str, list[str]]:
    """All keys of measured runs by level, as `perfmodel.efficiency` reads them from its SEEN_FILE."""
    keys = [run_keys(config) for config in configs]
    return {level: sorted({key[level] for key in keys}) for level in keys[0]}


def _predicted(p: Problem, fit: Fit, out: npt.NDArray[np.bool_]) -> Iterator[tuple[int, str, tuple[float, ...]]]:
    """Position, distance and results of every row left out."""
    kept = summarise(row.config for row, left in zip(p.rows, out, strict=True) if not left)
    seen = {level: frozenset(keys) for level, keys in kept.items()}
    priced, naive = fit.priced, naive_error(p, ~out)
    columns = (
        fit.log_error,
        fit.mode_error,
        naive,
        priced.smooth_s,
        np.broadcast_to(priced.stall_s, naive.shape),
        np.broadcast_to(priced.stall_chance, naive.shape),
        np.broadcast_to(priced.lower_s, naive.shape),
    )
    for i in np.flatnonzero(out):
        yield int(i), distance_to(p.rows[i].config, seen), tuple(float(column[i]) for column in columns)


def _arranged(distance: str, rows: Mapping[int, tuple[float, ...]]) -> HeldOut:
    index = np.array(sorted(rows), dtype=np.int64)
    columns = np.array([rows[int(i)] for i in index]).T
    return HeldOut(distance, index, *columns)


def naive_error(p: Problem, train: npt.NDArray[np.bool_]) -> Floats:
    """log(estimate / measured) of one share of peak per chip, precision and dense or mixture, the median of the rows in
    `train`; where a cell is empty, of the precision, then of the kind of chip."""
    peak = np.array([row.chip.peak(row.precision) for row in p.rows])
    flops = p.terms.tokens_per_chip * p.terms.work.model.model_flops
    ideal = np.broadcast_to(flops, peak.shape) / peak
    share = np.log(ideal / p.measured_s)
    cells = [(row.mixture, row.precision, row.chip.name) for row in p.rows]
    medians: dict[tuple[object, ...], float] = {}
    for depth in range(4):
        groups: dict[tuple[object, ...], list[float]] = {}
        for i in np.flatnonzero(train):
            groups.setdefault(cells[i][:depth], []).append(float(share[i]))
        medians |= {cell: float(np.median(values)) for cell, values in groups.items()}
    typical = [next(medians[c[:d]] for d in (3, 2, 1, 0) if c[:d] in medians) for c in cells]
    return share - np.array(typical)
