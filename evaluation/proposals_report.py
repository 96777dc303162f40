"""docs/accuracy-proposals.md, from proposals/accuracy_sweeps.json and proposals/accuracy.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation import proposals_cases

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "accuracy-proposals.md"
SWEEPS = ROOT / "proposals" / "accuracy_sweeps.json"
CASES = ROOT / "proposals" / "accuracy.json"

_SOURCES = {
    "ultrascale": "nanotron, 1B and 8B on 8–512 H100",
    "vtrain-single": "Megatron-DeepSpeed on 2–8 A100",
    "vtrain-multi": "Megatron-DeepSpeed on 64 and 256 A100",
    "simumax": "Megatron-LM on 8 B200",
    "all": "All",
}


def write() -> None:
    sweeps, cases = (json.loads(path.read_text(encoding="utf-8")) for path in (SWEEPS, CASES))
    lines = [*_head(sweeps), *_methods(sweeps), *_starts(sweeps), *_workloads(sweeps), *_weights(sweeps)]
    REPORT.write_text("\n".join([*lines, *proposals_cases.section(cases)]), encoding="utf-8")


def _head(figures: Mapping[str, Any]) -> list[str]:
    count = figures["sources"]["all"]
    return [
        "# Accuracy of proposals",
        "",
        f"Written by `make fit` on {figures['date']} (`python -m evaluation.proposals_on_sweeps`). How far a "
        "confidence may be trusted: [accuracy-confidence.md](accuracy-confidence.md); how good the step times are: "
        "[accuracy.md](accuracy.md).",
        "",
        "## On measured sweeps",
        "",
        f"Every run of {count['workloads']} workloads is a start once: {count['starts']} starts, "
        f"{count['configurations']} configurations, {count['failed']} of which failed. Of the start its configuration "
        "and its step time are known, and its peak memory where the source published it; no profile, no precedent. "
        "Proposed is what was tried for "
        "the workload (mesh, micro-batch, ZeRO stage), so that every proposal has a measured outcome. A configuration "
        "that was run more than once counts as one, with the median of its times; it failed if every attempt did. "
        "FSDP runs of the fourth source are left out: it tried one configuration per model and chip count.",
        "",
        "Step times come from efficiencies fitted without the workload (nor the others of its fold, an eighth of all), "
        "weights from a search without them; the regressor, gradient boosting of log time over ideal compute on 16 "
        "features (logs of ideal compute time, bubble, launches, work per launch, collective times by axis, degrees, "
        "tokens per micro-batch, share of memory, ZeRO, program, micro-batches), and the naive model, one share of "
        "peak per chip and precision, are fitted on the same folds. These, and *time model alone*, take the fastest "
        "predicted that the rules of legality and memory allow; *random* takes any. **What is not out of fold**: the "
        "memory model's constants for nanotron, and its choice of terms; and neighbouring workloads of "
        "Megatron-DeepSpeed on few GPUs (76 on a grid of widths, layers and batches) are near to each other in any "
        "fold.",
        "",
        "*First*, *of three*: how many times faster per token than the start, geometric mean over starts; a run that "
        "fails, or keeps the start, gains nothing; of three the best counts, or the start. *Crashed*: first proposals "
        "that failed, and starts where any of three did. *Regret*: time per token beyond the fastest of the workload "
        "after the first (median, mean), and after three. *Trials*: runs down the list until one is within 2 % of the "
        "fastest (mean; those that fail count). *Rank*: Spearman's correlation of predicted and measured time, mean "
        "over workloads of at least five runs. *Error*: median of predicted step times.",
        "",
    ]


def _methods(figures: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    order = [name for name in _SOURCES if name in figures["methods"]]
    for source in order:
        count = figures["sources"][source]
        lines += [
            f"### {_SOURCES[source]} ({count['workloads']} workloads, {count['starts']} starts, {count['failed']} of "
            f"{count['configurations']} configurations failed)",
            "",
            "| | first | of three | faster | slower | crashed: first | any of three | regret: first | of three "
            "| trials | rank | error |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for method, row in figures["methods"][source].items():
            cells = [
                f"{row['first']:.2f}×",
                f"{row['three']:.2f}×",
                *(_share(row[key]) for key in ("faster", "slower", "crashed", "three_crashed")),
                f"{_share(row['left_median'], 1)}, {_share(row['left_mean'])}",
                f"{_share(row['three_left_median'], 1)}, {_share(row['three_left_mean'])}",
                f"{row['trials']:.1f}",
                "–" if row["rank"] is None else f"{row['rank']:.2f}",
                _share(row["error"], 1),
            ]
            name = f"**{method}**" if method == "proposals" else method
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _starts(figures: Mapping[str, Any]) -> list[str]:
    lines = [
        "### From good starts and from bad ones",
        "",
        "All sources; by how much longer per token than the fastest the start takes.",
        "",
        "| start | n | first | of three | faster | slower | kept | crashed | regret: first | of three |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in figures["starts"]:
        upto = "and more" if row["to"] is None else f"to {100 * row['to']:.0f} %"
        cells = [
            str(row["starts"]),
            f"{row['first']:.2f}×",
            f"{row['three']:.2f}×",
            *(_share(row[key]) for key in ("faster", "slower", "keeps", "crashed")),
            _share(row["left_median"], 1),
            _share(row["three_left_median"], 1),
        ]
        lines.append(f"| {100 * row['from']:.0f} {upto} | {' | '.join(cells)} |")
    return [*lines, ""]


def _workloads(figures: Mapping[str, Any]) -> list[str]:
    rows = sorted(figures["workloads"], key=lambda row: -row["three_left_median"])
    lines = [
        "### Where it errs",
        "",
        "Workloads with at least 20 configurations, by the regret that is left after three.",
        "",
        "| workload | starts | first | of three | crashed | regret: first | of three |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows[:12]:
        lines.append(
            f"| {row['workload']} | {row['starts']} | {row['first']:.2f}× | {row['three']:.2f}× | "
            f"{_share(row['crashed'])} | {_share(row['left_median'], 1)} | {_share(row['three_left_median'], 1)} |"
        )
    return [
        *lines,
        "",
        "On 512 GPUs the runs of nanotron scatter: meshes for which every model predicts 0.15 s took 1–3 s, and the "
        "fastest measured was a pipeline. Runs near full memory are the other failure: their time and whether they run "
        "are both uncertain. On 64 and 256 A100 the memory model is not fitted to the program, and its caution costs "
        "more than it saves: the time model alone does better there.",
        "",
    ]


def _weights(figures: Mapping[str, Any]) -> list[str]:
    weights = figures["weights"]
    folds = ", ".join(f"{each:g}" for each in figures["weights_left_out"]["simplify"])
    tried = figures["tried"]["simplify"]
    return [
        "### What is learnt",
        "",
        "`utility = P · gain − (1 − P) · failed_trial`; P is the probability that the candidate runs "
        "([accuracy-memory.md](accuracy-memory.md)). The best candidate is then simplified: parts are dropped whose "
        "removal costs less than a share of its utility. What a share is worth, as mean log gain of first and best of "
        "three less what failed trials cost, against none, with its standard error over workloads:",
        "",
        "| share | " + " | ".join(f"{float(each):.0%}".replace("%", " %") for each in tried) + " |",
        "|---|" + "--:|" * len(tried),
        "| worth | " + " | ".join(f"{100 * gain:+.2f} ± {100 * error:.2f} %" for gain, error in tried.values()) + " |",
        "",
        f"Chosen: {weights['simplify']:g} (in the folds: {folds}), the largest that is worth no less than the best by "
        f"more than a standard error. A failed trial costs {weights['failed_trial']:g}, which is stated, not learnt: "
        "no outcome "
        f"says what a trial costs. The discount of {weights['discount']:g} per step where the model is not known comes "
        "from measured pairs with the model hidden: what would be proposed gained 67 % of what was predicted.",
        "",
        "Tried and left out, since they earned nothing on these starts nor on the cases below: standard deviations "
        "given away for safety; costs per step, of each further axis beyond two, of axes that the run did not have, of "
        "each kind of training key, of split torus dimensions, of replicated copies, of offloading, of HBM staying in "
        "charge; a probability of fitting per doubling of the weights where nothing is known.",
        "",
    ]


def _share(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


if __name__ == "__main__":
    write()
