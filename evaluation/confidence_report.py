"""docs/accuracy-confidence.md and its plot, from the numbers of `fit_confidence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.accuracy_plots import reliability
from evaluation.report import percent, wrapped

DOCS = Path(__file__).resolve().parents[1] / "docs"
_TITLES = {"known": "Model known", "unknown": "Model, batch and length hidden"}
_RAN = ("sweeps", "optico", "published")
_SOURCES = {
    "published": "published runs",
    "optico": "OptiCo, Figure 5",
    "ultrascale": "nanotron on H100 (Ultra-Scale Playbook)",
    "vtrain-single": "Megatron-DeepSpeed on 2–8 A100 (vTrain)",
    "vtrain-multi": "Megatron-DeepSpeed on 64 and 256 A100 (vTrain)",
    "simumax": "Megatron-LM on 8 B200 (SimuMax)",
    "llm-foundry": "PyTorch FSDP (llm-foundry)",
}


def write(numbers: Mapping[str, Any]) -> None:
    series = {_TITLES[name]: numbers[name]["reliability"] for name in _TITLES}
    plot = reliability(series, "Confidence of proposals, out of fold")
    (DOCS / "accuracy" / "confidence.svg").write_text(plot, encoding="utf-8")
    (DOCS / "accuracy-confidence.md").write_text(wrapped(text(numbers)), encoding="utf-8")


def text(numbers: Mapping[str, Any]) -> str:
    fit, known, unknown = numbers["fit"], numbers["known"], numbers["unknown"]
    total = sum(numbers["pairs"].values())
    return "\n".join(
        [
            "# Calibration of confidence",
            "",
            f"Written by `make fit` on {numbers['date']} from {total:,} pairs of measured runs with the same model, "
            "chips, batch and sequence length that differ in mesh, micro-batches, weight sharding, recomputation or "
            "stages: "
            + "; ".join(f"{_SOURCES[name]} {count:,}" for name, count in numbers["pairs"].items())
            + ". Sources and licences of the sweeps: `evaluation/data/sweeps/README.md`. Accuracy of step times: "
            "[accuracy.md](accuracy.md).",
            "",
            "![Reliability](accuracy/confidence.svg)",
            "",
            "## How a pair is predicted",
            "",
            "One run of the pair is the baseline: its measured step time, split as the model predicts, goes through "
            "the calibration that prices proposals (`perfmodel.calibration`), and the other run is priced from it. "
            "Each pair counts once, from the run predicted slower to the one predicted faster, the direction of a "
            "proposal. Efficiencies are fitted without the rows they predict. Repeated runs count with their median; "
            "a large sweep with a sample of pairs drawn by hash, five for each of its n − 1 comparisons. A profile "
            "with the actual breakdown predicts better, so the confidence is conservative; no published pair shows "
            "by how much.",
            "",
            "Pairs of one sweep share a program and a cluster: a group of n runs counts as n − 1 comparisons, and a "
            "family (one model of one source) of m comparisons as √m. Whole families are held out.",
            "",
            "## What is fitted",
            "",
            f"The measured log gain is distributed around the predicted one as Student's t with {fit['freedom']:.0f} "
            "degrees of freedom and the scale √(σ² + floor²), where σ is the model's own spread. The floor is "
            f"{percent(fit['floor'])}, at which 80 % of the measured gains are within the 80 % interval. With model, "
            f"batch and length hidden it is {percent(fit['floor_assumed'])}. Confidence is the probability of a gain "
            "above zero, times the probability that the candidate runs.",
            "",
            "A team's own measured proposals update the fit (`confidence.updated`); the shipped fit weighs as much "
            f"as {fit['families']} of them, its number of families.",
            "",
            "Effects measured on other runs in the history are not used: they did not improve the confidence on "
            "held-out families ([history-transfer.md](history-transfer.md#in-the-confidence)). Only a measurement of "
            "the same change of the same run counts.",
            "",
            "Where no peak was measured, memory has a fitted spread: actual ÷ computed memory is log-normal with σ = "
            f"{fit['memory_spread']:.2f}, fitted to which runs succeeded in the "
            "sources that list failures (nanotron's sweeps and OptiCo; a source of n runs counts as √n). "
            "nanotron's sweeps do not distinguish crashes from running out of memory: of the runs with three "
            f"quarters of the memory free {percent(numbers['crashes'])} failed, and this share is assumed at any "
            "usage. The memory posterior of a workload is in `perfmodel.legality`.",
            "",
            "| computed memory, of the chip's | sweeps: ran | OptiCo: ran | published: ran | probability |",
            "|---|--:|--:|--:|--:|",
            *_fills(numbers["fills"]),
            "",
            "## Held-out evaluation",
            "",
            "All pairs are of families held out of the fit. *Right*: share measured faster. *Constant*: one share "
            "for all, that of the other families. *Raw*: a normal distribution with σ alone, nothing fitted. *In "
            "range*: measured gains within the 80 % interval, and within that of σ alone.",
            "",
            *_scores(known, unknown),
            "",
            "*Picks*: for every run, the run of its group with the largest predicted gain, as in a first proposal: "
            f"stated {percent(known['picks']['stated'])}, right {percent(known['picks']['right'])}. Of their "
            f"measured gains {percent(known['picks']['covered'])} are within the 80 % interval, of all pairs "
            f"{percent(known['all']['covered'])}.",
            "",
            f"The Brier score of a constant share is {known['all']['brier_constant']:.3f}, of the confidence "
            f"{known['all']['brier']:.3f}; the log losses are {known['all']['log_loss_constant']:.3f} and "
            f"{known['all']['log_loss']:.3f}. A coin flip scores 0.25 and 0.69. Where the direction is about equally "
            "often right for any predicted gain, a confidence cannot be much better than a constant share.",
            "",
            "## Reliability",
            "",
            "| | stated | pairs | mean stated | faster |",
            "|---|---|--:|--:|--:|",
            *(
                f"| {_TITLES[name]} | {100 * row['from']:.0f}–{100 * row['to']:.0f} % | {row['pairs']} | "
                f"{percent(row['stated'])} | {percent(row['right'])} |"
                for name in _TITLES
                for row in numbers[name]["reliability"]
            ),
            "",
            "## Known limitations",
            "",
            "By source, for pairs with a known model: mean gain predicted and measured, and the floor fitted to the "
            "source alone. If that is far above the shipped floor, gains are outside the interval more often than "
            "stated; if far below, the confidence is understated.",
            "",
            "| pairs | n | gain predicted | measured | in range | floor fitted to source |",
            "|---|--:|--:|--:|--:|--:|",
            *_errors(known["by_source"], numbers["floors"]),
            "",
        ]
    )


def _errors(sources: Mapping[str, Any], floors: Mapping[str, float]) -> list[str]:
    return [
        f"| {_SOURCES[name]} | {row['pairs']} | {percent(row['gain_predicted'])} | {percent(row['gain_measured'])} | "
        f"{percent(row['covered'])} | {percent(floors[name])} |"
        for name, row in sources.items()
    ]


def _fills(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        low, high = 100 * row["from"], 100 * row["to"]
        span = f"{low:.0f}–{high:.0f} %" if high < 900 else f"over {low:.0f} %"
        cells = [f"{ran} of {count}" if count else "–" for ran, count in (row[name] for name in _RAN)]
        lines.append(f"| {span} | {' | '.join(cells)} | {100 * row['fits']:.0f} % |")
    return lines


def _scores(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> list[str]:
    lines = [
        "| pairs | n | right | stated | Brier: ours | constant | raw | log loss: ours | constant | raw "
        "| in range: ours | raw |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows = [("model known", known["all"]), ("· picks", known["picks"])]
    rows += [(f"· {_SOURCES[name]}", part) for name, part in known["by_source"].items()]
    rows += [(f"· {name}", part) for name, part in known["by_change"].items()]
    rows += [("model, batch, sequence length hidden", unknown["all"]), ("· picks", unknown["picks"])]
    for name, row in rows:
        cells = [str(row["pairs"]), percent(row["right"]), percent(row["stated"])]
        cells += [f"{row[key]:.3f}" for key in ("brier", "brier_constant", "brier_raw")]
        cells += [f"{row[key]:.3f}" for key in ("log_loss", "log_loss_constant", "log_loss_raw")]
        cells += [percent(row["covered"]), percent(row["covered_raw"])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
