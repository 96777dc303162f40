"""docs/accuracy-confidence.md and its plot, from the numbers of `fit_confidence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.accuracy_plots import reliability

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
    (DOCS / "accuracy-confidence.md").write_text(text(numbers), encoding="utf-8")


def text(numbers: Mapping[str, Any]) -> str:
    fit, known, unknown = numbers["fit"], numbers["known"], numbers["unknown"]
    total = sum(numbers["pairs"].values())
    return "\n".join(
        [
            "# Calibration of confidence",
            "",
            f"Written by `make fit` on {numbers['date']}. {total:,} pairs of measured runs that share model, chips, "
            "batch and sequence length and differ in mesh, micro-batches, weight sharding, recomputation or stages: "
            + "; ".join(f"{_SOURCES[name]} {count:,}" for name, count in numbers["pairs"].items())
            + ". Sources and licences of the sweeps: `evaluation/data/sweeps/README.md`. How good the performance "
            "model's step times are: [accuracy.md](accuracy.md).",
            "",
            "![Reliability](accuracy/confidence.svg)",
            "",
            "## How a pair is predicted",
            "",
            "One run of the pair stands for the profile: its measured step time, in the parts that the model gives it, "
            "goes through the calibration (`perfmodel.calibration`) that prices proposals, and the other run is priced "
            "from there. Each pair counts once, from the run predicted slower to the one predicted faster: the "
            "direction in which it would be proposed. Efficiencies had no part of the rows they predict. Of runs that "
            "were repeated, the median counts; of a large sweep, a sample of pairs drawn by hash, five for each of its "
            "n − 1 comparisons. A profile "
            "that shows where the time really goes predicts better than this; by how much, no published pair can tell, "
            "so the confidence is on the careful side.",
            "",
            "Pairs of one sweep share a program and a cluster: a group of n runs counts as n − 1 comparisons, and a "
            "family (one model of one source) of m comparisons as √m. Families are left out whole.",
            "",
            "## What is fitted",
            "",
            "The measured log gain lies around the predicted one as Student's t with "
            f"{fit['freedom']:.0f} degrees of freedom and the scale √(σ² + floor²); σ is the model's own spread. The "
            f"floor is {_percent(fit['floor'])}: at it 80 % of the measured gains lie within the 80 % interval. Where "
            f"model, batch and length are hidden it is {_percent(fit['floor_assumed'])}. Confidence is the probability "
            "of a gain above zero, times the probability that the candidate runs.",
            "",
            f"A team's own measured proposals move the fit (`confidence.updated`): the shipped one weighs as "
            f"{fit['families']} of them, as many as it has families.",
            "",
            "Effects that the history measured on other runs have no part in it: drawn to them, the confidence was no "
            "better on families left out ([history-transfer.md](history-transfer.md#in-the-confidence)). Only a "
            "measurement of the same change of the same run counts.",
            "",
            "A second number is learnt of memory, where no peak was measured: programs need more or less than the "
            f"model computes by a factor whose logarithm has the spread {fit['memory_spread']:.2f}, from who ran and "
            "who did not in the sources that list failures (nanotron's sweeps and OptiCo; a source of n runs counts as "
            "√n). nanotron's do not tell crashes from running out of memory: of its runs with three quarters of the "
            f"memory left {_percent(numbers['crashes'])} failed, and as many are taken to fail at any filling. That a "
            "program ran at its own computed memory says that it is none of the hungriest (`Confidence.fits`).",
            "",
            "| computed, of the memory a chip has | sweeps: ran | OptiCo: ran | published: ran | probability |",
            "|---|--:|--:|--:|--:|",
            *_fills(numbers["fills"]),
            "",
            "## Does it hold?",
            "",
            "Every row is of pairs whose family had no part in the fit. *Right*: share measured faster. *Constant*: "
            "one share for all, that of the other families. *Raw*: a normal distribution with σ alone, nothing "
            "learnt. *In range*: measured gains within the 80 % interval, and within that of σ alone.",
            "",
            *_scores(known, unknown),
            "",
            "*Picks*: after every run, the run of its group with the largest predicted gain, as the first proposal "
            f"would be: stated {_percent(known['picks']['stated'])}, right {_percent(known['picks']['right'])}. "
            f"Of their measured gains {_percent(known['picks']['covered'])} lie within the 80 % interval, of all pairs "
            f"{_percent(known['all']['covered'])}.",
            "",
            f"The Brier score of one share for all is {known['all']['brier_constant']:.3f}, of the confidence "
            f"{known['all']['brier']:.3f}; the log losses are {known['all']['log_loss_constant']:.3f} and "
            f"{known['all']['log_loss']:.3f}. Even odds score 0.25 and 0.69. Where the direction is right about as "
            "often whatever the size of the predicted gain, a confidence cannot be much better than one share.",
            "",
            "## Reliability",
            "",
            "| | stated | pairs | mean stated | faster |",
            "|---|---|--:|--:|--:|",
            *(
                f"| {_TITLES[name]} | {100 * row['from']:.0f}–{100 * row['to']:.0f} % | {row['pairs']} | "
                f"{_percent(row['stated'])} | {_percent(row['right'])} |"
                for name in _TITLES
                for row in numbers[name]["reliability"]
            ),
            "",
            "## Where it errs",
            "",
            "By source, of pairs whose model is known: mean gain predicted and measured, and what a floor of its own "
            "would be. A source whose floor is far above the shipped one has gains outside the range more often than "
            "stated; one whose floor is far below is understated.",
            "",
            "| pairs | n | gain predicted | measured | in range | own floor |",
            "|---|--:|--:|--:|--:|--:|",
            *_errors(known["by_source"], numbers["floors"]),
            "",
        ]
    )


def _errors(sources: Mapping[str, Any], floors: Mapping[str, float]) -> list[str]:
    return [
        f"| {_SOURCES[name]} | {row['pairs']} | {_percent(row['gain_predicted'])} | {_percent(row['gain_measured'])} | "
        f"{_percent(row['covered'])} | {_percent(floors[name])} |"
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
        "| pairs | n | right | stated | Brier | constant | raw | log loss | constant | raw | in range | raw |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows = [("model known", known["all"]), ("· picks", known["picks"])]
    rows += [(f"· {_SOURCES[name]}", part) for name, part in known["by_source"].items()]
    rows += [(f"· {name}", part) for name, part in known["by_change"].items()]
    rows += [("model, batch, length hidden", unknown["all"]), ("· picks", unknown["picks"])]
    for name, row in rows:
        cells = [str(row["pairs"]), _percent(row["right"]), _percent(row["stated"])]
        cells += [f"{row[key]:.3f}" for key in ("brier", "brier_constant", "brier_raw")]
        cells += [f"{row[key]:.3f}" for key in ("log_loss", "log_loss_constant", "log_loss_raw")]
        cells += [_percent(row["covered"]), _percent(row["covered_raw"])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
