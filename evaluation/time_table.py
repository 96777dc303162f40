"""Fits as the table that the product reads: perfmodel/efficiencies.toml, and tables without a fold for evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from evaluation.fit_time import FOLD_STEPS, Fit, fitted, problem
from evaluation.held_out import FOLDINGS, fold_of
from evaluation.time_priors import PRECISION_LOSS, PRIORS
from evaluation.time_rows import SAME_SILICON, TimeRow, load_rows
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import EfficiencyTable, ErrorRange, from_scale, load_efficiencies, to_scale

Ranges = Mapping[str, Mapping[str, Mapping[str, ErrorRange]]]
KINDS = ("tpu", "gpu")


def table(fits: Sequence[Fit], ranges: Ranges) -> EfficiencyTable:
    """One table of the fits of both kinds of chip."""
    kinds: dict[str, dict[str, float]] = {}
    shifts: dict[str, dict[str, float]] = {}
    stalls: dict[str, dict[str, float]] = {}
    sources: dict[str, str] = {}
    for fit in fits:
        kind = fit.problem.kind
        moved = {(p.name, p.key): float(x) for p, x in zip(fit.problem.parameters, fit.x, strict=True)}
        kinds[kind] = {
            name: float(
                from_scale(name, np.asarray(to_scale(name, prior.value) + moved.get((name, f"kind.{kind}"), 0.0)))
            )
            for name, prior in PRIORS[kind].items()
        }
        sources[f"kind.{kind}"] = (
            f"make fit: {len(fit.problem.rows)} measured runs; priors in evaluation/time_priors.py"
        )
        for precision, loss in PRECISION_LOSS.items():
            shifts.setdefault(f"kind.{kind}.{precision}", {})["matmul"] = loss
        for (name, key), shift in moved.items():
            if key != f"kind.{kind}":
                for alike in _alike(key):
                    row = shifts.setdefault(alike, {})
                    row[name] = row.get(name, 0.0) + shift
        for profile, stall in fit.stalls.items():
            stalls[profile] = {
                "stall_s": stall.stall_s,
                "stall_per_host": stall.per_host,
                "full_at": stall.full_at,
                "full_spread": stall.full_spread,
            }
    counts = Counter(key for fit in fits for parameter in fit.problem.parameters for key in [parameter.key])
    for key in shifts:
        sources[f"shift.{key}"] = f"make fit: {_rows_of(key, fits)} measured runs" if key in counts else "prior"
    for profile in stalls:
        sources[f"stall.{profile}"] = "make fit: pipelined runs that stalled (evaluation.fit_time.fit_stalls)"
    return EfficiencyTable(kinds, shifts, stalls, ranges, sources, _provenance(fits))


def _alike(key: str) -> list[str]:
    """The key, and the same of parts that share the die."""
    level, _, rest = key.partition(".")
    if level != "chip":
        return [key]
    chip, dot, precision = rest.partition(".")
    return [key, *(f"chip.{part}{dot}{precision}" for part, die in SAME_SILICON.items() if die == chip)]


def _rows_of(key: str, fits: Sequence[Fit]) -> int:
    return max(
        (int(p.mask.sum()) for fit in fits for p in fit.problem.parameters if key in _alike(p.key)),
        default=0,
    )


def _provenance(fits: Sequence[Fit]) -> dict[str, object]:
    rows = [row for fit in fits for row in fit.problem.rows]
    return {
        "state": "fitted",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rows": len(rows),
        "configurations": len({row.configuration for row in rows}),
        "workloads": len({(row.source, row.workload) for row in rows}),
        "sources": sorted({row.source for row in rows}),
    }


def write(path: Path, table: EfficiencyTable) -> None:
    """efficiencies.toml."""
    lines = [
        "# Written by `make fit` (evaluation/fit_time.py) from measured runs; see docs/accuracy.md.",
        "# kind: values; shift: added on the scale of perfmodel.efficiency.to_scale; range: errors of held-out runs.",
        "",
        "[provenance]",
        *(f"{key} = {_toml(value)}" for key, value in table.provenance.items()),
    ]
    for part, rows in (("kind", table.kinds), ("shift", table.shifts), ("stall", table.stalls)):
        for key, row in rows.items():
            lines += ["", f'[{part}."{key}"]', f'source = "{table.sources[f"{part}.{key}"]}"']
            lines += [f"{name} = {value:.5g}" for name, value in row.items()]
    for profile, classes in table.ranges.items():
        for name, distances in classes.items():
            for distance, one in distances.items():
                lines += ["", f'[range."{profile}".{name}.{distance}]']
                lines += [f"{key} = {getattr(one, key):.4g}" for key in ("low80", "high80", "median", "naive_median")]
                lines += [f"rows = {one.rows}", f"borrowed = {str(one.borrowed).lower()}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@cache
def _whole(kind: str) -> Fit:
    p = problem(load_rows(kind))
    return fitted(p, np.ones(len(p.rows), dtype=bool))


@cache
def _fold_table(kind: str, rule: str, number: int) -> EfficiencyTable:
    key_of, count = FOLDINGS[rule]
    assert count is not None
    whole = _whole(kind)
    train = np.array([fold_of(key_of(row), count) != number for row in whole.problem.rows])
    return table([fitted(whole.problem, train, whole.x, FOLD_STEPS)], load_efficiencies().ranges)


def table_without(row: TimeRow, rule: str = "workload") -> EfficiencyTable:
    """A table whose fit has seen no run of the row's workload (or model), nor of the others in its fold.

    rule: of FOLDINGS, with a number of folds.  Fitted once per fold; ranges are those of the shipped table.
    """
    key_of, count = FOLDINGS[rule]
    assert count is not None
    return _fold_table(row.chip.kind, rule, fold_of(key_of(row), count))


def table_without_model(config: ExperimentConfig) -> EfficiencyTable:
    """A table whose fit has seen no run of the configuration's model on any chip.  The model must be given."""
    return table_without(TimeRow("", "", "", config, 0.0), "model")
