"""Cases with a known answer, generated worlds and ablations: their part of docs/accuracy-proposals.md."""

from __future__ import annotations

from typing import Any

from evaluation.report import percent

_HALVES = {
    "development": "used during development of the Proposer",
    "held out": "nothing was changed for it",
}


def section(figures: dict[str, Any]) -> list[str]:
    """found: proposals/accuracy.json, written by `python -m evaluation.proposing.evaluate`."""
    lines = [
        "## Cases with a known answer",
        "",
        "Written by `python -m evaluation.proposing.evaluate`. These simulated worlds are simpler than a cluster: "
        "they test proposals from a profile that shows every op, while the sweeps above measure actual outcomes.",
        "",
        "*Recipes*: the answer is a published run's mesh (the fastest, if several were published). The baseline is "
        "drawn by hash from the legal meshes that fit, are at most two doublings away and take 10 to 60 % longer by "
        "the performance model. Its profile is generated op by op in its own world, with efficiencies drawn per "
        "case, sharing only link sizes with the performance model (`evaluation/proposing/published_cases.py`); "
        "durations vary by ±10 % and one op in twenty is missing. Every legal mesh and every further change may be "
        "proposed; *meshes alone*: batch, micro-batches, recomputation, weight sharding and flags are pinned.",
        "",
        "*Sweeps*: many meshes of one workload were run (OptiCo, Figure 5), and the answer is the fastest measured. "
        "Baselines are drawn among those that took at least 10 % longer; batch, micro-batch and recomputation are "
        "pinned, and no sequence axis may be added, since none was run.",
        "",
        "Cases are split by hash into a development half and a held-out half. *Match*: the answer's mesh, with batch "
        "axes interchangeable (in brackets: exactly). *Baseline gap*: time per token of the baseline over the answer, "
        "minus 1, mean; *remaining gap*: the same for the first proposal and the best of three. Negative: faster than "
        "the answer, which need not be optimal in a simulated world or with another micro-batch. *Within 2 %*: first "
        "proposal at most 2 % slower than the answer. *Slower*: first proposal slower than the baseline. *Predicted*: "
        "predicted time of the first proposal over that of the answer, minus 1.",
        "",
    ]
    for half, rows in figures["halves"].items():
        lines += [f"### {half.capitalize()}: {_HALVES[half]}", ""]
        lines += [
            "| cases | n | match, first | of three | baseline gap | remaining gap, first | of three | within 2 % "
            "| slower | predicted |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for name, row in rows.items():
            cells = [
                str(row["cases"]),
                f"{percent(row['family_top'], 0)} ({percent(row['top'], 0)})",
                f"{percent(row['family_three'], 0)} ({percent(row['three'], 0)})",
                *(_percent(row[key]) for key in ("lost", "left", "left_of_three")),
                *(percent(row[key], 0) for key in ("as_good", "slower")),
                _percent(row["predicted"]),
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        sweep = rows["sweeps"]
        lines += [
            "",
            f"Sweeps ({sweep['cases']} in all): the authors ran the first proposal in {sweep['measured']}; "
            f"{percent(sweep['measured_faster'], 0)} of these were measured faster than the baseline, "
            f"{percent(sweep['measured_near'], 0)} within 2 % of the fastest; on average "
            f"{_percent(sweep['measured_left'])} over the fastest, with baselines at "
            f"{_percent(sweep['measured_lost'])}. {sweep['failed']} ran out of memory. Stated confidence of first "
            f"proposals that move the mesh: {percent(sweep['stated'], 0)}.",
            "",
        ]
    return [*lines, *_generated(figures["generated"]), "", *_ablation(figures["ablation"]), ""]


def _generated(rows: list[dict[str, Any]]) -> list[str]:
    return [
        "## Confidence in generated worlds",
        "",
        "Proposals that move the mesh in the recipe cases: how many were faster in the case's world, and how often "
        "the gain was in the 80 % interval. Nothing was fitted on them; they show how the confidence holds with "
        "profiles that show every op, in worlds simpler than a cluster.",
        "",
        "| stated | proposals | mean stated | faster | in range |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {100 * row['from']:.0f}–{100 * row['to']:.0f} % | {row['proposals']} | {percent(row['stated'], 0)} | "
            f"{percent(row['faster'], 0)} | {percent(row['inside'], 0)} |"
            for row in rows
        ),
    ]


def _ablation(figures: dict[str, Any]) -> list[str]:
    lines = [
        "## Without history, without roofline",
        "",
        "*History off*: no precedents. *Roofline off*: no performance model; every legal mesh is expected to gain "
        "nothing, ±15 %, and rules, costs and precedents alone rank. Precedents of a case exclude all records of its "
        "model on its chip; experiment 1 of the paper is itself a precedent. The paper's experiments: as "
        "reconstructed, as printed, and four times with durations off by ±10 % and ops missing; the expert's mesh on "
        "top (in three). Cases: both halves together.",
        "",
        "| | experiment 1 | experiment 2 | experiment 3 | recipes: on top | in three | left | sweeps: on top "
        "| in three | measured left | out of memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, row in figures.items():
        papers_ = [f"{top} ({three}) of {count}" for count, top, three in row["papers"].values()]
        recipe, sweep = row["recipes"], row["sweeps"]
        cells = [
            *papers_,
            *(percent(recipe[key], 0) for key in ("family_top", "family_three")),
            _percent(recipe["left"]),
            *(percent(sweep[key], 0) for key in ("family_top", "family_three")),
            _percent(sweep["measured_left"]),
            str(sweep["failed"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"
