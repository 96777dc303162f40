"""How accurate the model is, from out-of-fold predictions: docs/accuracy.md, its plots, and accuracy.json."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from perfmodel.accuracy_plots import bars, scatter
from perfmodel.optico import Agreement, agreement
from perfmodel.published import PublishedRun, load_published
from perfmodel.step_time import predict

if TYPE_CHECKING:
    from perfmodel.fit import HeldOut, Problem

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ACCURACY_FILE = Path(__file__).with_name("accuracy.json")
DOCS = Path(__file__).resolve().parents[1] / "docs"
#: The question most predictions answer: this model has not been measured on this chip.
HEADLINE = "pair"
FOLDINGS = {
    "configuration": "each configuration left out with all its releases; its model may be known on its chip",
    "pair": "each pair of model and chip left out in turn",
    "family": "each family of architectures left out, on every chip",
    "chip": "each chip left out, with every model on it",
}
CLASSES = ("tpu", "gpu")


def foldings(runs: Sequence[PublishedRun]) -> dict[str, list[str]]:
    """Group of every run, for each way of leaving rows out."""
    return {
        "configuration": [run.configuration for run in runs],
        "pair": [f"{run.shape.name} on {run.chip.name}" for run in runs],
        "family": [f"{run.family} on {run.chip.kind}" for run in runs],
        "chip": [run.chip.name for run in runs],
    }


def baseline(p: Problem, groups: Sequence[str]) -> Floats:
    """log(estimate / measured) of the naive model, out of fold: one share of peak per chip, precision and dense or
    mixture, the median of the other folds' rows; where a cell is empty, of the precision, then of the kind of chip."""
    peak = np.array([run.chip.peak(run.config.training.precision) for run in p.runs])
    ideal = p.terms.model_flops_per_chip / peak
    share = ideal / p.measured_s
    cells = [(run.chip.kind, run.mixture, run.config.training.precision, run.chip.name) for run in p.runs]
    names = np.array(groups)
    estimates = np.zeros(len(p.runs))
    for i, cell in enumerate(cells):
        for depth in (4, 3, 2, 1):
            known = [share[j] for j, c in enumerate(cells) if c[:depth] == cell[:depth] and names[j] != names[i]]
            if known:
                estimates[i] = ideal[i] / np.median(known)
                break
    return np.asarray(np.log(estimates / p.measured_s))


def summary(p: Problem, held: HeldOut, naive: Floats, rows: Mask) -> dict[str, Any]:
    """Errors of the rows chosen: absolute percentage, against the naive model's on the same rows, and the ranges'."""
    error, measured = np.abs(np.expm1(held.log_error[rows])), p.measured_s[rows]
    plain = np.abs(np.expm1(naive[rows]))
    inside = (held.lower_s[rows] <= measured) & (measured <= held.upper_s[rows])
    covered = (held.low80_s[rows] <= measured) & (measured <= held.high80_s[rows])
    return {
        "rows": int(rows.sum()),
        "median": float(np.median(error)),
        "mean": float(error.mean()),
        "bias": float(np.expm1(np.median(held.log_error[rows]))),
        "median_undated": float(np.median(np.abs(np.expm1(held.undated_log_error[rows])))),
        "naive_median": float(np.median(plain)),
        "naive_mean": float(plain.mean()),
        "in_bounds": float(inside.mean()),
        "in_80_range": float(covered.mean()),
    }


def by(p: Problem, held: HeldOut, naive: Floats, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    names = np.array(keys)
    return {key: summary(p, held, naive, names == key) for key in sorted(set(keys))}


def ranking(p: Problem, held: HeldOut) -> list[dict[str, Any]]:
    """Published workloads measured on several meshes: Spearman of prediction and measurement over the meshes, and how
    much longer the mesh predicted fastest takes than the fastest.  A mesh measured under several releases counts once,
    at its best."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, run in enumerate(p.runs):
        groups[run.workload][run.configuration].append(i)
    result = []
    for workload, meshes in groups.items():
        if len(meshes) < 2:
            continue
        best = [min(rows, key=lambda i: p.measured_s[i]) for rows in meshes.values()]
        measured, predicted = p.measured_s[best], held.estimate_s[best]
        result.append(
            {
                "workload": workload,
                "meshes": len(best),
                "spearman": float(spearmanr(measured, predicted).statistic),
                "regret": float(measured[np.argmin(predicted)] / measured.min() - 1.0),
                "spread": float(measured.max() / measured.min() - 1.0),
            }
        )
    return result


def worst(p: Problem, held: HeldOut, count: int = 12) -> list[dict[str, Any]]:
    rows = np.argsort(-np.abs(held.log_error))[:count]
    return [
        {
            "id": p.runs[i].id,
            "model": p.runs[i].shape.name,
            "chip": p.runs[i].chip.name,
            "precision": p.runs[i].config.training.precision,
            "mesh": p.runs[i].config.mesh.text(),
            "software": str(p.runs[i].config.extra.get("software_date", "")),
            "measured_s": float(p.measured_s[i]),
            "estimate_s": float(held.estimate_s[i]),
            "error": float(np.expm1(held.log_error[i])),
            "why": why(p, held, int(i)),
        }
        for i in rows
    ]


def why(p: Problem, held: HeldOut, row: int) -> str:
    """What the other rows say about a large error, in words."""
    run = p.runs[row]
    twins = [
        i
        for i, other in enumerate(p.runs)
        if i != row
        and (other.shape.name, other.chip.name) == (run.shape.name, run.chip.name)
        and other.config.training.precision == run.config.training.precision
    ]
    per_token = p.measured_s / p.terms.tokens_per_chip
    same = [i for i in twins if p.runs[i].configuration == run.configuration]
    if same:
        ratio = per_token[row] / float(np.median(per_token[same]))
        if abs(np.log(ratio)) > 0.15:
            speed = "slower" if ratio > 1 else "faster"
            return f"the same configuration is {abs(ratio - 1):.0%} {speed} here than under its other releases"
    if twins:
        ratio = per_token[row] / float(np.median(per_token[twins]))
        if abs(np.log(ratio)) > 0.25:
            speed = "slower" if ratio > 1 else "faster"
            return f"per token {abs(ratio - 1):.0%} {speed} than the other runs of this model on this chip"
        errors = held.log_error[twins]
        if np.sign(np.median(errors)) == np.sign(held.log_error[row]) and abs(np.median(errors)) > 0.1:
            return "all runs of this model on this chip err the same way: its kernels differ from the others'"
    if not twins:
        return "the only run of this model on this chip and precision"
    return "no single cause found in the published rows"


def report(p: Problem, folds: Mapping[str, HeldOut]) -> dict[str, Any]:
    """Everything docs/accuracy.md says, as numbers."""
    kinds = np.array(p.kinds)
    naives = {name: baseline(p, held.groups) for name, held in folds.items()}
    head, naive = folds[HEADLINE], naives[HEADLINE]
    precisions = [f"{run.chip.name} {run.config.training.precision}" for run in p.runs]
    sort = ["mixture" if run.mixture else "dense" for run in p.runs]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rows": len(p.runs),
        "configurations": len({run.configuration for run in p.runs}),
        "foldings": {
            name: {kind: summary(p, held, naives[name], kinds == kind) for kind in CLASSES}
            for name, held in folds.items()
        },
        "by_chip": by(p, head, naive, [run.chip.name for run in p.runs]),
        "by_chip_and_precision": by(p, head, naive, precisions),
        "by_parallelism": by(p, head, naive, [f"{run.chip.kind}: {run.parallelism}" for run in p.runs]),
        "by_sort": by(p, head, naive, [f"{run.chip.kind}: {s}" for run, s in zip(p.runs, sort, strict=True)]),
        "by_model": by(p, head, naive, [f"{run.shape.name} on {run.chip.name}" for run in p.runs]),
        "ranking": ranking(p, head),
        "worst": worst(p, head),
        "optico": asdict(agreement()),
        "not_fitting": [run.id for run in p.runs if predict(run.config).fits is False],
        "unmapped": dict(load_published().unmapped),
        "points": [
            {
                "id": run.id,
                "model": run.shape.name,
                "chip": run.chip.name,
                "kind": run.chip.kind,
                "mixture": run.mixture,
                "measured_s": float(p.measured_s[i]),
                "estimate_s": float(head.estimate_s[i]),
                "low80_s": float(head.low80_s[i]),
                "high80_s": float(head.high80_s[i]),
            }
            for i, run in enumerate(p.runs)
        ],
    }


def write_report(p: Problem, folds: Mapping[str, HeldOut]) -> None:
    numbers = report(p, folds)
    ACCURACY_FILE.write_text(json.dumps(_rounded(numbers), indent=1) + "\n", encoding="utf-8")
    plots = DOCS / "accuracy"
    plots.mkdir(parents=True, exist_ok=True)
    for kind in CLASSES:
        points = [point for point in numbers["points"] if point["kind"] == kind]
        (plots / f"{kind}.svg").write_text(scatter(points, f"Out-of-fold step time, {kind.upper()}"), encoding="utf-8")
    (plots / "chips.svg").write_text(bars(numbers["by_chip"], "Absolute error by chip, out of fold"), encoding="utf-8")
    (DOCS / "accuracy.md").write_text(text(numbers), encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value


def load_accuracy() -> dict[str, Any]:
    """The numbers of the last `make fit`, for the application's page."""
    data: dict[str, Any] = json.loads(ACCURACY_FILE.read_text(encoding="utf-8"))
    return data


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [
        f"| {title} | rows | median | mean | bias | naive median | naive mean | in bounds | in 80 % range |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, row in rows.items():
        cells = [row["median"], row["mean"], row["bias"], row["naive_median"], row["naive_mean"], row["in_bounds"]]
        lines.append(
            f"| {name} | {row['rows']} | " + " | ".join(_percent(c) for c in (*cells, row["in_80_range"])) + " |"
        )
    return lines


def text(numbers: Mapping[str, Any]) -> str:
    """docs/accuracy.md."""
    lines = [
        "# How accurate the performance model is",
        "",
        f"Written by `make fit` on {numbers['date']}. Every error here is of a row the fit did not see: "
        f"{numbers['rows']} published runs ({numbers['configurations']} distinct configurations; a configuration "
        "measured under several software releases is one). Error is |estimate / measured − 1|; bias is the median of "
        "estimate / measured − 1. The naive model is one share of peak per chip, precision and dense or mixture, the "
        "median of the rows it may see. *In bounds*: measured within [lower, upper]; *in 80 % range*: within "
        "[low80, high80], whose width comes from other folds' errors. How often a diagnosis is right: "
        "[accuracy-diagnosis.md](accuracy-diagnosis.md); how good proposals are, and how far their "
        "confidence may be trusted: [accuracy-proposals.md](accuracy-proposals.md), "
        "[accuracy-confidence.md](accuracy-confidence.md).",
        "",
        "![TPU](accuracy/tpu.svg)",
        "![GPU](accuracy/gpu.svg)",
        "![Errors by chip](accuracy/chips.svg)",
        "",
        "## By what is left out",
        "",
    ]
    for name, kinds in numbers["foldings"].items():
        lines += [f"### {name.capitalize()}: {FOLDINGS[name]}", "", *_table("kind", kinds), ""]
    head = numbers["foldings"][HEADLINE]["gpu"]
    lines += [
        "The fit pulls every efficiency towards a textbook value (`perfmodel/fit_priors.py`). Those values, and which "
        "effects the model has, were chosen with these errors in view; no row's own measurement enters its estimate.",
        "",
        "GPU rows name their software release. Where a configuration does not (`software.date` absent), the median "
        f"error of the GPU rows is {_percent(head['median_undated'])} instead of {_percent(head['median'])}.",
        "",
        "All that follows leaves out one pair of model and chip at a time.",
        "",
        "## By chip",
        "",
        *_table("chip", numbers["by_chip"]),
        "",
        "## By chip and precision",
        "",
        *_table("chip, precision", numbers["by_chip_and_precision"]),
        "",
        "## By kind of parallelism",
        "",
        *_table("axes larger than one", numbers["by_parallelism"]),
        "",
        "## Dense models and mixtures of experts",
        "",
        *_table("sort", numbers["by_sort"]),
        "",
        "## By model and chip",
        "",
        *_table("model on chip", numbers["by_model"]),
        "",
        "## Ranking meshes of one workload",
        "",
        "Published workloads measured on several meshes or micro-batches. *Regret*: how much longer the mesh predicted "
        "fastest takes than the fastest measured; *spread*: slowest over fastest. Most differ in software too.",
        "",
        "| workload | meshes | Spearman | regret | spread |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {row['workload']} | {row['meshes']} | {row['spearman']:.2f} | {_percent(row['regret'])} | "
            f"{_percent(row['spread'])} |"
            for row in numbers["ranking"]
        ),
        "",
        _ranking_sentence(numbers["ranking"]),
        "",
        "### OptiCo, Figure 5",
        "",
        _optico_sentence(Agreement(**numbers["optico"])),
        "",
        "## Memory of runs that ran",
        "",
        _memory_sentence(numbers),
        "",
        "## Worst rows",
        "",
        "| row | model | chip | mesh | software | measured s | estimate s | error | why |",
        "|---|---|---|---|---|--:|--:|--:|---|",
        *(
            f"| {row['id']} | {row['model']} | {row['chip']} {row['precision']} | {row['mesh']} | {row['software']} | "
            f"{row['measured_s']:.2f} | {row['estimate_s']:.2f} | {_percent(row['error'])} | {row['why']} |"
            for row in numbers["worst"]
        ),
        "",
        "## Rows not used",
        "",
        *(f"- {reason}: {', '.join(ids)}" for reason, ids in _by_reason(numbers["unmapped"]).items()),
    ]
    return "\n".join(lines) + "\n"


def _optico_sentence(found: Agreement) -> str:
    recognised = found.out_of_memory - found.missed
    level = float(np.expm1(found.time_bias))
    return (
        "Sixteen hand-tuned runs of Llama3-8B on eight A100, none of them fitted: "
        f"Spearman {found.spearman:.3f}; first choice {found.first_choice}, {_percent(found.regret)} slower than the "
        f"best measured (over all three batches {_percent(found.regret_all)}, by time per "
        f"token); {recognised} of {found.out_of_memory} out-of-memory runs recognised, with "
        f"{found.false_alarms} false alarm(s); peak memory within {_percent(found.memory_median)} on the median, "
        f"{_percent(found.memory_worst)} at worst. The estimates are {_percent(level)} off in level."
    )


def _memory_sentence(numbers: Mapping[str, Any]) -> str:
    wrong = numbers["not_fitting"]
    return (
        f"{numbers['rows'] - len(wrong)} of {numbers['rows']} are predicted to fit; not {', '.join(wrong) or 'none'}. "
        "GPU rows that say nothing of recomputation are taken to recompute or offload what does not fit, as a "
        "configuration without `remat` is; those whose weights alone exceed the mesh published are not used."
    )


def _ranking_sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    known = [row for row in rows if row["spearman"] == row["spearman"]]
    if not known:
        return "No workload was measured on several meshes."
    right = sum(row["regret"] < 0.01 for row in known)
    return (
        f"Over {len(known)} workloads: mean Spearman {np.mean([row['spearman'] for row in known]):.2f}, first choice "
        f"within 1 % of the best in {right}, mean regret {_percent(float(np.mean([row['regret'] for row in known])))}."
    )


def _by_reason(unmapped: Mapping[str, str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = defaultdict(list)
    for row, reason in unmapped.items():
        result[reason].append(row)
    return dict(result)
