"""`python -m evaluation.proposals_on_sweeps`: learn how candidates are weighed, and report what proposals are worth.

Starts at every measured run of every workload and proposes among those configurations of it that were tried; prices by
efficiencies, and weights by a search, that have not seen the workload.  Writes proposals/proposer/ranking.toml,
proposals/accuracy_sweeps.json and docs/accuracy-proposals.md; with `--report` only the page, from the numbers as they
are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from evaluation import proposals_report
from evaluation.fit_ranking import NOTHING, Learner
from evaluation.report import rounded
from evaluation.sweep_baselines import naive_s, regressor_s
from evaluation.sweep_candidates import Sweep, unseen_s
from evaluation.sweep_groups import Group, groups
from evaluation.sweep_scores import Outcomes, follow, joined, rank_correlation, scores
from proposals.proposer.prices import Weights

Floats = npt.NDArray[np.float64]
T = TypeVar("T")

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "proposals" / "accuracy_sweeps.json"
WEIGHTS = ROOT / "proposals" / "proposer" / "ranking.toml"
#: Random choices per start.
DRAWS = 20
#: How much longer than the fastest a start takes, for the table by start.
STARTS = ((0.0, 0.1), (0.1, 0.5), (0.5, 2.0), (2.0, np.inf))


def numbers() -> dict[str, Any]:
    every = groups()
    ours = [unseen_s(group) for group in every]
    learner = Learner([Sweep(group, price) for group, price in zip(every, ours, strict=True)])
    weights = learner.search(list(learner.starts))
    left_out = dict(learner.left_out())
    names = [group.workload for group in every]
    without_peak = Learner([Sweep(group, price, with_peak=False) for group, price in zip(every, ours, strict=True)])
    prices = {"naive model": naive_s(every), "regressor": regressor_s(every), "time model alone": ours}
    outcomes = {
        "random": [_random(group) for group in every],
        **{
            name: [_by_price(*each) for each in zip(every, priced_groups, strict=True)]
            for name, priced_groups in prices.items()
        },
        "proposals, not simplified": [learner.outcomes(name, NOTHING) for name in names],
        "proposals": [learner.outcomes(name, left_out[name]) for name in names],
        "proposals, peak memory unknown": [without_peak.outcomes(name, left_out[name]) for name in names],
    }
    parts = {source: [g.source == source for g in every] for source in dict.fromkeys(g.source for g in every)}
    parts["all"] = [True] * len(every)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "sources": {name: _counted(_chosen(every, mask)) for name, mask in parts.items()},
        "methods": {
            name: {
                method: {
                    **scores(joined(_chosen(priced_groups, mask))),
                    **_model(_chosen(every, mask), _chosen(prices[method], mask) if method in prices else None),
                }
                for method, priced_groups in outcomes.items()
            }
            for name, mask in parts.items()
        },
        "starts": _by_start(joined(outcomes["proposals"])),
        "workloads": [
            {"workload": name, "source": group.source} | _brief(priced_groups)
            for name, group, priced_groups in zip(names, every, outcomes["proposals"], strict=True)
            if len(group) >= 20
        ],
        "weights": {field: getattr(weights, field) for field in Weights.__dataclass_fields__},
        "weights_left_out": _spread(list(left_out.values())),
        "tried": {
            name: {f"{value:g}": list(worth) for value, worth in priced_groups.items()}
            for name, priced_groups in learner.tried().items()
        },
    }


def _chosen(values: Sequence[T], mask: Sequence[bool]) -> list[T]:
    return [value for value, wanted in zip(values, mask, strict=True) if wanted]


def _random(group: Group) -> Outcomes:
    draw = np.random.default_rng(len(group))
    return joined([follow(group, _upset(draw.random((len(group), len(group))))) for _ in range(DRAWS)])


def _upset(values: Floats) -> Floats:
    """The baseline is never kept."""
    return np.where(np.eye(len(values), dtype=bool), -1.0, values)


def _by_price(group: Group, price_s: Floats) -> Outcomes:
    """Fastest predicted first, among what the rules of legality and memory allow; ties by chance."""
    per_token = np.log(price_s / group.tokens)
    gain = per_token[:, None] - per_token[None, :]
    return follow(group, np.where(Sweep(group, price_s).legal[None, :] | np.eye(len(group), dtype=bool), gain, -np.inf))


def _model(priced_groups: Sequence[Group], prices: Sequence[Floats] | None) -> dict[str, float | None]:
    """Median error of the step times, and rank correlation, of methods that predict any."""
    if prices is None:
        return {"error": None, "rank": None}
    errors = np.concatenate(
        [np.abs(p / group.time_s - 1.0)[list(group.starts)] for p, group in zip(prices, priced_groups, strict=True)]
    )
    rho = [rank_correlation(group, p) for p, group in zip(prices, priced_groups, strict=True)]
    known = [value for value in rho if value is not None]
    return {"error": float(np.median(errors)), "rank": float(np.mean(known)) if known else None}


def _counted(groups_counted: Sequence[Group]) -> dict[str, int]:
    return {
        "workloads": len(groups_counted),
        "starts": sum(len(group.starts) for group in groups_counted),
        "configurations": sum(len(group) for group in groups_counted),
        "failed": sum(int((~group.ran).sum()) for group in groups_counted),
    }


def _by_start(outcomes: Outcomes) -> list[dict[str, Any]]:
    rows = []
    for low, high in STARTS:
        inside = (outcomes.start_left >= low) & (outcomes.start_left < high)
        part = Outcomes(**{name: getattr(outcomes, name)[inside] for name in Outcomes.__annotations__})
        rows.append({"from": low, "to": None if high == np.inf else high, **scores(part)})
    return rows


def _brief(outcomes: Outcomes) -> dict[str, float]:
    said = scores(outcomes)
    return {key: said[key] for key in ("starts", "first", "three", "crashed", "left_median", "three_left_median")}


def _spread(fitted: Sequence[Weights]) -> dict[str, list[float]]:
    """The values that each weight took over the folds."""
    return {name: sorted({getattr(one, name) for one in fitted}) for name in Weights.__dataclass_fields__}


def toml(figures: Mapping[str, Any]) -> str:
    sources = figures["sources"]
    return "\n".join(
        [
            "# Written by `make fit` (evaluation/proposals_on_sweeps.py); its meaning: docs/accuracy-proposals.md.",
            "",
            "[ranking]",
            *(f"{name} = {value:g}" for name, value in figures["weights"].items()),
            "",
            "[provenance]",
            f'source = "outcomes from {sources["all"]["starts"]} starts of {sources["all"]["workloads"]} workloads"',
            f'date = "{figures["date"]}"',
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    if "--report" not in arguments:
        figures = rounded(numbers())
        NUMBERS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        WEIGHTS.write_text(toml(figures), encoding="utf-8")
    proposals_report.write()


if __name__ == "__main__":
    main(sys.argv[1:])
