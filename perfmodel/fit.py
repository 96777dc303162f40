"""Fit the efficiencies on the published runs: `make fit`, or `python -m perfmodel.fit`.

A few physical numbers per kind of chip, each pulled towards a textbook value, and one speed per chip and precision
pulled towards its kind's.  Rows of one configuration under several software releases share their weight.  What is
reported as error is always that of rows the fit did not see.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from perfmodel.chips import load_chips
from perfmodel.efficiency import EFFICIENCIES_FILE, Efficiencies, load_efficiencies
from perfmodel.fit_priors import (
    ARCHITECTURE_SPREAD,
    ARCHITECTURES,
    EFFECTS,
    PRECISION_LOSS,
    PRIORS,
    SAME_SILICON,
    from_scale,
    to_scale,
)
from perfmodel.published import PublishedRun, load_published
from perfmodel.step_time import Priced, combine
from perfmodel.terms import Terms, step_terms
from perfmodel.workload import from_config, stack

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Scatter of log(measured / estimate) beyond which a row counts as an outlier and pulls with constant force.
SCATTER = 0.08
#: Quantile of a normal distribution: 80 % lie within so many standard deviations.
Z80 = 1.2816
STEP = 1e-4
#: Steps of a fold that starts from the solution over all rows; it settles in fewer.
FOLD_STEPS = 15


@dataclass(frozen=True)
class Parameter:
    """One number the fit moves: a shift of `name`, on its scale, for the rows of `mask`; 0 is the prior's mean."""

    name: str
    key: str
    spread: float
    mask: Floats


@dataclass(frozen=True)
class Problem:
    """Rows with their terms, and the parameters that explain them."""

    runs: tuple[PublishedRun, ...]
    terms: Terms
    parameters: tuple[Parameter, ...]

    @cached_property
    def measured_s(self) -> Floats:
        return np.array([run.step_time_s for run in self.runs])

    @cached_property
    def weights(self) -> Floats:
        """A configuration measured n times weighs as √n rows, not as n."""
        counts = Counter(run.configuration for run in self.runs)
        return np.array([counts[run.configuration] ** -0.25 for run in self.runs])

    @cached_property
    def kinds(self) -> list[str]:
        return [run.chip.kind for run in self.runs]

    @cached_property
    def mixture(self) -> Mask:
        return np.array([run.mixture for run in self.runs])

    @cached_property
    def _prior(self) -> dict[str, Floats]:
        loss = np.array([PRECISION_LOSS.get(run.config.training.precision, 0.0) for run in self.runs])
        return {
            name: np.array([to_scale(name, PRIORS[kind][name].value) for kind in self.kinds])
            + (loss if name == "matmul" else 0.0)
            for name in PRIORS["tpu"]
        }

    def efficiencies(self, x: Floats) -> Efficiencies:
        """Efficiencies of every row for parameters x: (..., parameters) gives fields of (..., rows)."""
        values = {name: np.broadcast_to(prior, (*x.shape[:-1], len(self.runs))) for name, prior in self._prior.items()}
        for name in values:
            columns = [i for i, parameter in enumerate(self.parameters) if parameter.name == name]
            if columns:
                values[name] = values[name] + x[..., columns] @ np.array([self.parameters[i].mask for i in columns])
        return replace(Efficiencies(), **{name: from_scale(name, value) for name, value in values.items()})

    def price(self, x: Floats) -> Priced:
        return combine(self.terms, self.efficiencies(x))

    def log_error(self, x: Floats) -> Floats:
        """log(estimate / measured), (..., rows)."""
        return np.asarray(np.log(self.price(x).estimate_s / self.measured_s))


def problem(runs: Sequence[PublishedRun]) -> Problem:
    """The fit of these runs: which numbers move, by kind of chip, precision and chip."""
    kinds = np.array([run.chip.kind for run in runs])
    chips = np.array([SAME_SILICON.get(run.chip.name, run.chip.name) for run in runs])
    precisions = np.array([run.config.training.precision for run in runs])
    parameters = [
        Parameter(name, f"kind.{kind}", prior.spread, (kinds == kind).astype(float))
        for kind, priors in PRIORS.items()
        for name, prior in priors.items()
        if prior.spread > 0
    ]
    plain = ("bf16", "fp16", "fp32")
    for name, effect in EFFECTS.items():
        for kind in PRIORS:
            for precision in sorted(set(precisions[kinds == kind]) - set(plain)):
                mask = (kinds == kind) & (precisions == precision)
                parameters.append(Parameter(name, f"kind.{kind}.{precision}", effect.precision, mask.astype(float)))
        for chip in sorted(set(chips)):
            parameters.append(Parameter(name, f"chip.{chip}", effect.chip, (chips == chip).astype(float)))
            for precision in sorted(set(precisions[chips == chip]) - set(plain)):
                mask = (chips == chip) & (precisions == precision)
                key = f"chip.{chip}.{precision}"
                parameters.append(Parameter(name, key, effect.chip_precision, mask.astype(float)))
    families = np.array([run.family for run in runs])
    for kind in PRIORS:
        for family in ARCHITECTURES:
            mask = (kinds == kind) & (families == family)
            if mask.any():
                key = f"architecture.{kind}.{family}"
                parameters.append(Parameter("architecture", key, ARCHITECTURE_SPREAD, mask.astype(float)))
    kept = tuple(parameter for parameter in parameters if parameter.spread > 0)
    return Problem(tuple(runs), step_terms(stack([from_config(run.config) for run in runs])), kept)


def solve(p: Problem, train: Mask, start: Floats | None = None, max_steps: int = 40) -> Floats:
    """Parameters that explain the rows of `train`: robust least squares of the log error, with the priors as rows."""
    spreads = np.array([parameter.spread for parameter in p.parameters])
    weights = p.weights[train] / SCATTER

    def robust(x: Floats) -> Floats:
        error = p.log_error(x)[..., train] * weights
        return np.asarray(np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error * error) - 1.0)))

    def residuals(x: Floats) -> Floats:
        return np.concatenate([robust(x), x / spreads])

    def jacobian(x: Floats) -> Floats:
        """All forward differences in one call: the model prices arrays."""
        shifted = robust(np.vstack([x, x + STEP * np.eye(len(x))]))
        return np.vstack([(shifted[1:] - shifted[0]).T / STEP, np.diag(1.0 / spreads)])

    first = np.zeros(len(p.parameters)) if start is None else start
    found = least_squares(residuals, first, jac=jacobian, method="trf", max_nfev=max_steps, x_scale=spreads)
    return np.asarray(found.x)


@dataclass(frozen=True)
class HeldOut:
    """Out-of-fold results of every row; arrays over rows.

    log_error: log(estimate / measured); undated_log_error: the same without knowing the software release.  lower,
    upper, low80, high80: with a spread taken from the other folds' errors, so that no row judges its own range.
    """

    groups: tuple[str, ...]
    log_error: Floats
    undated_log_error: Floats
    estimate_s: Floats
    lower_s: Floats
    upper_s: Floats
    low80_s: Floats
    high80_s: Floats


def cross_validate(p: Problem, groups: Sequence[str], start: Floats | None = None) -> HeldOut:
    """Fit once per group on all others and predict the group."""
    names = np.array(groups)
    estimates, undated = np.zeros(len(p.runs)), np.zeros(len(p.runs))
    blind = replace(p, terms=replace(p.terms, software_year=np.full(len(p.runs), np.nan)))
    solutions: dict[str, Floats] = {}
    for group in sorted(set(groups)):
        out = names == group
        solutions[group] = solve(p, ~out, start, FOLD_STEPS)
        estimates[out] = p.price(solutions[group]).estimate_s[out]
        undated[out] = blind.log_error(solutions[group])[out]
    error = np.log(estimates / p.measured_s)
    columns = {name: np.zeros(len(p.runs)) for name in ("lower_s", "upper_s", "low80_s", "high80_s")}
    for group, x in solutions.items():
        out = names == group
        dense, mixture = spreads(p, error, ~out)
        priced = combine(p.terms, replace(p.efficiencies(x), spread=dense, spread_mixture=mixture))
        for name, column in columns.items():
            column[out] = np.broadcast_to(getattr(priced, name), len(p.runs))[out]
    return HeldOut(tuple(groups), error, undated, estimates, **columns)


def spreads(p: Problem, log_error: Floats, rows: Mask) -> tuple[Floats, Floats]:
    """Spread of dense models and of mixtures, per row by its kind of chip: such that 80 % of `rows` lie inside."""
    kinds = np.array(p.kinds)
    result = []
    for mixture in (False, True):
        values = np.zeros(len(p.runs))
        for kind in set(p.kinds):
            chosen = rows & (kinds == kind) & (p.mixture == mixture)
            errors, weights = np.abs(log_error[chosen]), p.weights[chosen] ** 2
            values[kinds == kind] = _quantile(errors, weights, 0.8) / Z80
        result.append(values)
    return result[0], result[1]


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(np.interp(share * cumulative[-1], cumulative - weights[order] / 2.0, values[order]))


def table(
    p: Problem, x: Floats, error: Floats, new_chip: Floats | None = None, new_architecture: Floats | None = None
) -> dict[str, dict[str, float]]:
    """Tables of efficiencies.toml: per kind, kind and precision, chip, chip and precision (see EfficiencyTable).

    error: log(estimate / measured) out of fold, on which the ranges rest; new_chip, new_architecture: the same with
    whole chips and architectures left out, for those no row has measured.
    """
    shift = {(parameter.name, parameter.key): value for parameter, value in zip(p.parameters, x, strict=True)}

    def value(name: str, kind: str, precision: str, keys: Sequence[str]) -> float:
        at = to_scale(name, PRIORS[kind][name].value) + sum(shift.get((name, key), 0.0) for key in keys)
        at += PRECISION_LOSS.get(precision, 0.0) if name == "matmul" else 0.0
        return float(from_scale(name, np.asarray(at)))

    tables: dict[str, dict[str, float]] = {}
    for kind, priors in PRIORS.items():
        first, key = p.kinds.index(kind), f"kind.{kind}"
        tables[key] = {name: value(name, kind, "", [key]) for name in priors}
        tables[key] |= _ranges(p, error, first)
        if new_architecture is not None:
            tables[f"architecture.{kind}."] = _ranges(p, new_architecture, first)
        for precision in PRECISION_LOSS:
            keys = [key, f"{key}.{precision}"]
            tables[keys[1]] = {name: value(name, kind, precision, keys) for name in EFFECTS}
    for chip in load_chips().values():
        silicon, kind = SAME_SILICON.get(chip.name, chip.name), f"kind.{chip.kind}"
        if ("matmul", f"chip.{silicon}") not in shift:
            if new_chip is not None:
                tables[f"chip.{chip.name}"] = _ranges(p, new_chip, p.kinds.index(chip.kind))
            continue
        tables[f"chip.{chip.name}"] = {name: value(name, chip.kind, "", [kind, f"chip.{silicon}"]) for name in EFFECTS}
        for precision in PRECISION_LOSS:
            if chip.runs_natively(precision):
                keys = [kind, f"{kind}.{precision}", f"chip.{silicon}", f"chip.{silicon}.{precision}"]
                tables[f"chip.{chip.name}.{precision}"] = {n: value(n, chip.kind, precision, keys) for n in EFFECTS}
    for (name, key), moved in shift.items():
        if name == "architecture":
            tables[key] = {name: float(np.exp(moved))}
    return tables


def _ranges(p: Problem, error: Floats, row: int) -> dict[str, float]:
    """Spreads for the kind of chip of a row."""
    dense, mixture = spreads(p, error, np.ones(len(p.runs), dtype=bool))
    return {"spread": float(dense[row]), "spread_mixture": float(mixture[row])}


def write_table(path: Path, p: Problem, tables: dict[str, dict[str, float]]) -> None:
    """efficiencies.toml: the tables, each with its source, and where they come from."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=path.parent, check=False)
    counts = Counter(p.kinds)
    lines = [
        "# Written by `make fit` (perfmodel/fit.py) from perfmodel/data/published_runs.json; see docs/accuracy.md.",
        "# Efficiencies of perfmodel.efficiency.Efficiencies by where they apply; the more special table wins.",
        "",
        "[provenance]",
        'state = "fitted"',
        f'date = "{datetime.now(UTC):%Y-%m-%d}"',
        f'commit = "{commit.stdout.strip() or "unknown"}"',
        f"rows = {len(p.runs)}",
        f"configurations = {len({run.configuration for run in p.runs})}",
        f"tpu_rows = {counts['tpu']}",
        f"gpu_rows = {counts['gpu']}",
        'spread = "out of fold: pairs of model and chip left out; 80 % of errors lie within 1.2816 spreads"',
    ]
    for key, row in tables.items():
        rows = sum(_applies(key, run) for run in p.runs)
        lines += [
            "",
            f'[table."{key}"]',
            f'source = "make fit: {rows} published runs, priors in perfmodel/fit_priors.py"',
        ]
        lines += [f"{name} = {value:.5g}" for name, value in row.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _applies(key: str, run: PublishedRun) -> bool:
    level, name, *precision = key.split(".", 2)
    if level == "architecture":
        return run.chip.kind == name and run.family == precision[0]
    silicon = SAME_SILICON.get(name, name)
    on = run.chip.kind == name if level == "kind" else SAME_SILICON.get(run.chip.name, run.chip.name) == silicon
    return on and (not precision or run.config.training.precision == precision[0])


def main() -> None:
    """Fit on all published runs; write efficiencies.toml and, with out-of-fold errors, the accuracy report."""
    from perfmodel import accuracy

    p = problem(load_published().runs)
    x = solve(p, np.ones(len(p.runs), dtype=bool))
    folds = {name: cross_validate(p, groups, x) for name, groups in accuracy.foldings(p.runs).items()}
    errors = [folds[name].log_error for name in (accuracy.HEADLINE, "chip", "family")]
    write_table(EFFICIENCIES_FILE, p, table(p, x, *errors))
    load_efficiencies.cache_clear()
    accuracy.write_report(p, folds)


if __name__ == "__main__":
    main()
