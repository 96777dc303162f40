"""Fit the confidence of proposals on measured pairs: `make fit`, or `python -m evaluation.fit_confidence`.

One number is learnt, the error of a predicted log gain that the model's own spread does not hold, from pairs of known
models; that it also holds where the model is hidden is checked.  Everything reported is of pairs whose family had no
part in its fit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import t as student

from evaluation.confidence_pairs import Predicted, predict_pairs
from evaluation.measured_pairs import SOURCES, Pair, measured_pairs
from evaluation.optico import tuned_runs
from evaluation.published import load_published
from evaluation.report import rounded
from evaluation.sweeps import load_sweeps
from perfmodel import confidence, memory
from perfmodel.confidence import Confidence
from perfmodel.workload import from_config

Floats = npt.NDArray[np.float64]

FILE = Path(confidence.__file__).with_name("confidence.toml")
NUMBERS = FILE.with_suffix(".json")
#: Degrees of freedom of Student's t: few, since one program in twenty surprises; more precisely pairs do not tell.
FREEDOM = 4.0
#: Bins of stated confidence in the reliability table.
FILLS = (0.001, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 10.0)
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.01)


@cache
def pairs() -> tuple[Pair, ...]:
    """The pairs that count: the same batch on both sides, as in a proposal whose step times compare."""
    return tuple(pair for pair in measured_pairs() if "batch" not in pair.changes)


@cache
def predictions(known: bool) -> tuple[Predicted, ...]:
    return predict_pairs(pairs(), known=known)


def floor_of(rows: Sequence[Predicted]) -> float:
    """The floor at which 80 % of the measured gains, by weight, lie in the 80 % interval."""
    errors = np.array([row.measured - row.gain for row in rows])
    sigma = np.array([row.sigma for row in rows])
    weight = np.array([row.weight for row in rows])
    # |error| ≤ q·sqrt(sigma² + floor²)  ⇔  floor² ≥ (error/q)² − sigma²: a weighted quantile of the right side.
    needed = (errors / student.ppf(0.9, FREEDOM)) ** 2 - sigma**2
    order = np.argsort(needed)
    cumulative = np.cumsum(weight[order])
    at = float(np.interp(0.8 * cumulative[-1], cumulative - weight[order] / 2.0, needed[order]))
    return float(np.sqrt(max(at, 0.0)))


#: Sources in which crashes are not distinguished from running out of memory.
CRASHES = ("ultrascale",)
#: Below this share of the memory, as computed, a failure has another reason.
ROOMY = 0.25


@cache
def fills() -> tuple[tuple[str, float, bool], ...]:
    """(source, computed memory over capacity, whether it ran) of every run; only one sweep and OptiCo list failures."""
    runs = [(run.source, run.config, run.status == "ran") for run in load_sweeps() if run.status != "unclear"]
    runs += [("optico", run.config, run.step_time_s is not None) for run in tuned_runs()]
    runs += [(f"published {run.chip.kind}", run.config, True) for run in load_published().runs]
    used = [memory.per_chip(from_config(config)) for _, config, _ in runs]
    filled = [float(np.max(use.total / use.capacity)) for use in used]
    return tuple((source, share, ran) for (source, _, ran), share in zip(runs, filled, strict=True))


@cache
def crash_share() -> float:
    """Share of the runs of CRASHES with plenty of memory left that failed all the same."""
    roomy = [ran for source, filled, ran in fills() if source in CRASHES and filled < ROOMY]
    return 1.0 - sum(roomy) / len(roomy)


@cache
def memory_spread() -> float:
    """The spread at which who ran and who did not is likeliest, without bias, since some need more than computed and
    others less.  Of the sources that list failures: where only successes are published, that they fit was the
    condition.  A source of n runs counts as √n, since they share a program; where crashes are listed too,
    `crash_share` of the runs fail anyway, or every crash would widen the spread."""
    told = {source for source, _, came in fills() if not came}
    rows = [row for row in fills() if row[0] in told]
    sources = [source for source, _, _ in rows]
    weight = np.array([sources.count(source) ** -0.5 for source in sources])
    logs = np.log([filled for _, filled, _ in rows])
    ran = np.array([came for _, _, came in rows])
    most = np.where([source in CRASHES for source in sources], 1.0 - crash_share(), 1.0)

    def unlikely(spread: float) -> float:
        share = np.clip(most * ndtr(-logs / spread), 1e-6, 1.0 - 1e-6)
        return -float(np.sum(weight * np.log(np.where(ran, share, 1.0 - share))))

    return float(minimize_scalar(unlikely, bounds=(0.02, 1.0), method="bounded").x)


def families(rows: Sequence[Predicted]) -> list[str]:
    return sorted({row.pair.family for row in rows})


@cache
def fit() -> Confidence:
    """The fit over all pairs."""
    rows = predictions(True)
    return Confidence(floor_of(rows), floor_of(predictions(False)), FREEDOM, len(families(rows)))


def held_out(known: bool) -> list[tuple[Predicted, Confidence]]:
    """Every pair with the fit of the other families, on pairs whose model is as well known."""
    rows = every = predictions(known)
    by_family = []
    for family in families(rows):
        floor = floor_of([row for row in every if row.pair.family != family])
        other = Confidence(floor, floor, FREEDOM, len(families(every)) - 1)
        by_family += [(row, other) for row in rows if row.pair.family == family]
    return by_family


def numbers() -> dict[str, Any]:
    """Everything docs/accuracy-confidence.md says."""
    result: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "fit": {
            **{name: getattr(fit(), name) for name in ("floor", "floor_assumed", "freedom", "families")},
            "memory_spread": memory_spread(),
        },
        "pairs": _count(),
        "crashes": crash_share(),
        "floors": {
            source: floor_of([row for row in predictions(True) if row.pair.source == source]) for source in _count()
        },
    }
    result["fills"] = _by_fill()
    for name, known in (("known", True), ("unknown", False)):
        rows = held_out(known)
        result[name] = {
            "all": scores(rows),
            "picks": scores(picks(rows)),
            "by_source": {
                source: scores(part)
                for source in SOURCES
                if (part := [row for row in rows if row[0].pair.source == source])
            },
            "by_change": {
                label: scores(part)
                for label, test in _CHANGES.items()
                if (part := [row for row in rows if test(row[0].pair.changes)])
            },
            "reliability": reliability(rows),
        }
    return result


def _by_fill() -> list[dict[str, Any]]:
    """By computed memory over capacity: of each source how many ran of how many, and the probability in the middle."""
    rows = []
    for low, high in pairwise(FILLS):
        row: dict[str, Any] = {"from": low, "to": high}
        for name in ("sweeps", "optico", "published"):
            came = [ran for source, filled, ran in fills() if _kind(source) == name and low <= filled < high]
            row[name] = [sum(came), len(came)]
        row["fits"] = float(ndtr(-np.log(min((low + high) / 2.0, low + 0.1)) / memory_spread()))
        rows.append(row)
    return rows


def _kind(source: str) -> str:
    return source.split()[0] if source.startswith(("optico", "published")) else "sweeps"


def _count() -> dict[str, int]:
    """Pairs by source, of those that have any at the same batch."""
    count = {source: sum(pair.source == source for pair in pairs()) for source in SOURCES}
    return {source: n for source, n in count.items() if n}


_CHANGES = {
    "mesh alone": lambda changes: changes == ("mesh",),
    "mesh and more": lambda changes: "mesh" in changes and len(changes) > 1,
    "training keys alone": lambda changes: "mesh" not in changes,
}


def scores(rows: Sequence[tuple[Predicted, Confidence]]) -> dict[str, float]:
    """How often the faster one is faster, and how well the confidence says so, against plainer answers.

    right: share measured faster; brier, log_loss: of the confidence, out of fold; *_constant: of one share for all,
    that of the other families; *_raw: of the normal distribution with the model's own spread; covered, covered_raw:
    share of measured gains within the 80 % interval, with the floor and without.
    """
    weight, gain, sigma, measured, stated = _columns(rows)
    came = measured > 0
    raw = np.clip(ndtr(gain / sigma), 0.01, 0.99)
    constant = _constant(rows)
    scale = np.array([float(fit.scale(row.sigma)) for row, fit in rows])
    errors = np.abs(measured - gain)

    def mean(values: npt.ArrayLike) -> float:
        return float(np.average(np.asarray(values, dtype=np.float64), weights=weight))

    result: dict[str, float] = {
        "pairs": len(rows),
        "right": mean(came),
        "stated": mean(stated),
        "gain_predicted": mean(gain),
        "gain_measured": mean(measured),
        "covered": mean(errors <= student.ppf(0.9, FREEDOM) * scale),
        "covered_raw": mean(errors <= student.ppf(0.9, 1e6) * sigma),
    }
    for name, said in (("", stated), ("_constant", constant), ("_raw", raw)):
        result[f"brier{name}"] = mean((said - came) ** 2)
        result[f"log_loss{name}"] = mean(-np.log(np.where(came, said, 1.0 - said)))
    return result


def _columns(rows: Sequence[tuple[Predicted, Confidence]]) -> tuple[Floats, ...]:
    """weight, gain, sigma, measured gain and stated confidence."""
    weight, gain, sigma, measured = (
        np.array([getattr(row, name) for row, _ in rows]) for name in ("weight", "gain", "sigma", "measured")
    )
    stated = np.array([float(fit.probability(row.gain, row.sigma)) for row, fit in rows])
    return weight, gain, sigma, measured, stated


def _constant(rows: Sequence[tuple[Predicted, Confidence]]) -> Floats:
    """Share measured faster among the pairs of the other families."""
    every = predictions(True)
    share = {}
    for family in {row.pair.family for row, _ in rows}:
        others = [row for row in every if row.pair.family != family]
        weight = np.array([row.weight for row in others])
        share[family] = float(np.average([row.measured > 0 for row in others], weights=weight))
    return np.array([share[row.pair.family] for row, _ in rows])


def picks(rows: Sequence[tuple[Predicted, Confidence]]) -> list[tuple[Predicted, Confidence]]:
    """Of all that could follow a run, the one with the largest predicted gain: what would be proposed first."""
    best: dict[tuple[str, int], tuple[Predicted, Confidence]] = {}
    for row, fit in rows:
        key = (row.pair.group, id(row.before))
        if key not in best or row.gain > best[key][0].gain:
            best[key] = (row, fit)
    return list(best.values())


def reliability(rows: Sequence[tuple[Predicted, Confidence]]) -> list[dict[str, float]]:
    """By bin of stated confidence: pairs, their weight, mean stated, share measured faster."""
    weight, _, _, measured, stated = _columns(rows)
    groups = []
    for low, high in pairwise(BINS):
        inside = (stated >= low) & (stated < high)
        if inside.any():
            part = weight[inside]
            groups.append(
                {
                    "from": low,
                    "to": min(high, 1.0),
                    "pairs": int(inside.sum()),
                    "weight": float(part.sum()),
                    "stated": float(np.average(stated[inside], weights=part)),
                    "right": float(np.average(measured[inside] > 0, weights=part)),
                }
            )
    return groups


def toml(confidence: Confidence) -> str:
    """confidence.toml: the fit with where it comes from."""
    return "\n".join(
        [
            "# Written by `make fit` (evaluation/fit_confidence.py); its meaning: docs/accuracy-confidence.md.",
            "",
            "[confidence]",
            f"floor = {confidence.floor:.4f}",
            f"floor_assumed = {confidence.floor_assumed:.4f}",
            f"freedom = {confidence.freedom:.1f}",
            f"families = {confidence.families}",
            "",
            "[provenance]",
            'source = "measured pairs at the same batch: '
            + ", ".join(f"{n} {name}" for name, n in _count().items())
            + '"',
            'weights = "a group of n runs counts as n - 1 comparisons, a family of m comparisons as the root of m"',
            f'date = "{datetime.now(UTC):%Y-%m-%d}"',
            "",
        ]
    )


def main() -> None:
    """Fit; write confidence.toml, confidence.json, and the report with its plot."""
    from evaluation import confidence_report

    FILE.write_text(toml(fit()), encoding="utf-8")
    figures = rounded(numbers())
    NUMBERS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    confidence_report.write(figures)


if __name__ == "__main__":
    main()
