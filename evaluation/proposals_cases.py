"""Cases with a known answer, generated worlds and ablations: their part of docs/accuracy-proposals.md."""

from __future__ import annotations

from typing import Any

_HALVES = {
    "open": "looked at while the Proposer was written",
    "kept apart": "seen in this table only; nothing was changed for it",
}


def section(figures: dict[str, Any]) -> list[str]:
    """found: proposals/accuracy.json, written by `python -m evaluation.proposing.evaluate`."""
    lines = [
        "## Cases with a known answer",
        "",
        "Written by `python -m evaluation.proposing.evaluate`. These worlds are simpler than a cluster: they say what "
        "proposals make of a profile that shows every op, and the sweeps above what they come to.",
        "",
        "*Recipes*: a published run's mesh is the answer (the fastest, where several were published). The start is "
        "drawn by a hash from the legal meshes that fit, lie at most two doublings away and take by the performance "
        "model 10 to 60 % longer. Its profile is written op by op in a world of its own, whose efficiencies are drawn "
        "per case and which shares only the sizes of the wires with the performance model "
        "(`evaluation/proposing/published_cases.py`); durations are off by ±10 % and one op in twenty is missing. "
        "Every legal mesh and every further change may be proposed; *meshes alone*: with batch, micro-batches, "
        "recomputation, weight sharding and flags held fast.",
        "",
        "*Sweeps*: of one workload many meshes were run (OptiCo, Figure 5), and the "
        "answer is the fastest measured. Starts are drawn among those that took at least 10 % longer; batch, "
        "micro-batch and recomputation are held fast, and no sequence axis may be added, since nobody ran one.",
        "",
        "A hash splits the cases in two halves: one open while the Proposer was written, one kept apart. *Same*: "
        "the answer's mesh, up to which batch axis carries what (in brackets: exactly). *Lost*: how much longer the "
        "start takes than the answer, per token, on the mean; *left*: the same of the first proposal, and of the best "
        "of three. Negative: faster than the answer, which nobody says is the best in a drawn world, nor with another "
        "micro-batch. *As good*: first proposal at most 2 % slower than the answer. *Slower*: first proposal slower "
        "than the start. *Predicted*: the first proposal's predicted time over that predicted of the answer.",
        "",
    ]
    for half, rows in figures["halves"].items():
        lines += [f"### {half.capitalize()}: {_HALVES[half]}", ""]
        lines += [
            "| cases | n | same, on top | in three | lost | left, first | of three | as good | slower | predicted |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for name, row in rows.items():
            cells = [
                str(row["cases"]),
                f"{_share(row['family_top'])} ({_share(row['top'])})",
                f"{_share(row['family_three'])} ({_share(row['three'])})",
                *(_percent(row[key]) for key in ("lost", "left", "left_of_three")),
                *(_share(row[key]) for key in ("as_good", "slower")),
                _percent(row["predicted"]),
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        sweep = rows["sweeps"]
        lines += [
            "",
            f"Measured, of the {sweep['cases']} sweeps: {sweep['measured']} first proposals were run by their authors; "
            f"{_share(sweep['measured_faster'])} of these were measured faster than the start, "
            f"{_share(sweep['measured_near'])} within 2 % of the fastest; on the mean "
            f"{_percent(sweep['measured_left'])} beyond the fastest, where their starts took "
            f"{_percent(sweep['measured_lost'])}. {sweep['failed']} ran out of memory there; the others were not run. "
            f"Stated confidence of first proposals that move: {_share(sweep['stated'])}.",
            "",
        ]
    return [*lines, *_generated(figures["generated"]), "", *_ablation(figures["ablation"]), ""]


def _generated(rows: list[dict[str, Any]]) -> list[str]:
    return [
        "## Confidence in generated worlds",
        "",
        "Proposals that move the mesh in the cases from recipes: how many made the step faster in the case's world, "
        "and how often its gain lay in the 80 % interval. Nothing was fitted on them; they say how the confidence "
        "holds where the profile shows every op, in worlds simpler than a cluster.",
        "",
        "| stated | proposals | mean stated | faster | in range |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {100 * row['from']:.0f}–{100 * row['to']:.0f} % | {row['proposals']} | {_share(row['stated'])} | "
            f"{_share(row['faster'])} | {_share(row['inside'])} |"
            for row in rows
        ),
    ]


def _ablation(figures: dict[str, Any]) -> list[str]:
    lines = [
        "## Without history, without roofline",
        "",
        "*History off*: no precedents. *Roofline off*: the performance model prices nothing; every legal mesh is "
        "expected to gain nothing, give or take 15 %, and rules, costs and precedents alone rank. The precedents of a "
        "case leave out every record of its model on its chip; experiment 1 of the paper is itself a precedent. "
        "The paper's experiments: as reconstructed, as printed, and four times with durations off by ±10 % and ops "
        "missing; the expert's mesh on top (in three). Cases: both halves together.",
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
            *(_share(recipe[key]) for key in ("family_top", "family_three")),
            _percent(recipe["left"]),
            *(_share(sweep[key]) for key in ("family_top", "family_three")),
            _percent(sweep["measured_left"]),
            str(sweep["failed"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"
