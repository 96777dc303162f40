"""docs/accuracy.md, its plots and asapweb/explore/accuracy.json, from the numbers of `evaluation.accuracy.report`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from evaluation.accuracy import SOURCES
from evaluation.accuracy_numbers import ACCURACY_FILE, Accuracy, ErrorScores
from evaluation.accuracy_plots import bars, scatter
from evaluation.report import percent, rounded, wrapped
from perfmodel.efficiency import DESCRIBED, DISTANCES

DOCS = Path(__file__).resolve().parents[1] / "docs"
KIND_WORDS = {"tpu": "TPU", "gpu": "GPU"}


def _as_json(numbers: Accuracy) -> dict[str, object]:
    data: dict[str, object] = TypeAdapter(Accuracy).dump_python(numbers, mode="json", by_alias=True)
    return data


def write(numbers: Accuracy) -> None:
    ACCURACY_FILE.write_text(json.dumps(rounded(_as_json(numbers)), indent=1) + "\n", encoding="utf-8")
    plots = DOCS / "accuracy"
    plots.mkdir(parents=True, exist_ok=True)
    for kind, word in KIND_WORDS.items():
        points = [point for point in numbers.points if point.kind == kind]
        (plots / f"{kind}.svg").write_text(scatter(points, f"Step time, workload left out, {word}"), encoding="utf-8")
    nearest = {part: next(iter(rows.values())) for part, rows in numbers.parts.items()}
    (plots / "parts.svg").write_text(bars(nearest, "Median error beside the naive model's"), encoding="utf-8")
    (DOCS / "accuracy.md").write_text(wrapped(text(numbers)), encoding="utf-8")


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


_ERROR_HEAD = "rows | median | mean | bias | naive median | in 80 % interval |"


def _errors(row: ErrorScores) -> str:
    shares = (row.median, row.mean, row.bias, row.naive_median, row.in_80_range)
    return f"{row.rows} | " + " | ".join(percent(share) for share in shares) + " |"


def text(numbers: Accuracy) -> str:
    """docs/accuracy.md."""
    return "\n".join(
        [
            "# Accuracy of predicted step times",
            "",
            f"Written by `make fit` on {numbers.date} from {numbers.rows:,} measured runs "
            f"({numbers.configurations:,} configurations of {numbers.workloads} workloads). Every error is "
            "|estimate / measured − 1| of a run held out of the fit; bias is the median of estimate / measured − 1. "
            "The naive model is a constant MFU per chip, precision and dense or MoE: the median of the runs it "
            "may see. Memory: [accuracy-memory.md](accuracy-memory.md), against the TPU compiler "
            "[accuracy-compiled.md](accuracy-compiled.md). Calibration with a profile: "
            "[accuracy-calibration.md](accuracy-calibration.md), on one GPU "
            "[accuracy-single-gpu.md](accuracy-single-gpu.md). Proposals: "
            "[accuracy-proposals.md](accuracy-proposals.md), [accuracy-confidence.md](accuracy-confidence.md). "
            "Diagnosis: [accuracy-diagnosis.md](accuracy-diagnosis.md).",
            "",
            "![TPU](accuracy/tpu.svg)",
            "![GPU](accuracy/gpu.svg)",
            "![Errors by source](accuracy/parts.svg)",
            "",
            *_distances(numbers),
            *_parts(numbers),
            *_ranking(numbers),
            *_chips(numbers),
            *_others(numbers),
            *_ablation(numbers),
            *_worst(numbers),
            "## Runs not used",
            "",
            *(f"- {reason}: {', '.join(ids)}" for reason, ids in _by_reason(numbers.unmapped).items()),
            "",
        ]
    )


def _distances(numbers: Accuracy) -> list[str]:
    lines = [
        "## By distance from the measured runs",
        "",
        "Each prediction states its distance from the measured runs, with the error and 80 % interval of held-out "
        "runs at that distance, of the same framework if there are enough. Single rows, configurations, workloads, "
        "models, architectures, chips and frameworks are held out in turn; a held-out run counts at its actual "
        "distance from the remaining runs.",
        "",
        f"| distance | | {_ERROR_HEAD}",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for distance in reversed(DISTANCES):
        for kind, word in KIND_WORDS.items():
            row = numbers.distances.get(kind, {}).get(distance)
            if row:
                lines.append(f"| {DESCRIBED[distance]} | {word} | {_errors(row)}")
    return [*lines, ""]


def _parts(numbers: Accuracy) -> list[str]:
    lines = [
        "## By source and distance",
        "",
        *(f"- *{source}*: {words}" for source, words in SOURCES.items()),
        "",
        f"| source | distance | {_ERROR_HEAD}",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for part, rows in numbers.parts.items():
        lines += [f"| {part} | {distance} | {_errors(rows[distance])}" for distance in DISTANCES if distance in rows]
    return [*lines, ""]


def _ranking(numbers: Accuracy) -> list[str]:
    lines = [
        "## Ranking the configurations of a workload",
        "",
        "Whole workloads are held out of the fit. *Regret*: time of the configuration predicted fastest over the "
        "fastest measured, minus 1; *of three*: the best of the first three; *trials*: runs in predicted order "
        "until one is within 2 % of the fastest. In brackets: the naive model.",
        "",
        "| source | workloads | Spearman | regret, median | mean | of three, median | mean | trials |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for source, both in numbers.ranking.items():
        ours, naive = both.ours, both.naive
        cells = [f"{_number(ours.spearman)} ({_number(naive.spearman)})"]
        cells += [
            f"{percent(getattr(ours, key))} ({percent(getattr(naive, key))})"
            for key in ("regret_median", "regret_mean", "three_median", "three_mean")
        ]
        cells.append(f"{ours.trials_median:.0f} ({naive.trials_median:.0f})")
        lines.append(f"| {source} | {ours.workloads} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _chips(numbers: Accuracy) -> list[str]:
    lines = [
        "## By chip",
        "",
        f"| chip | held out | {_ERROR_HEAD}",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for chip, rows in numbers.chips.items():
        lines += [f"| {chip} | the {left} | {_errors(row)}" for left, row in rows.items()]
    return [*lines, ""]


def _others(numbers: Accuracy) -> list[str]:
    lines = ["## Recipes: unseen architectures, later releases", ""]
    for kind, row in numbers.architecture.items():
        lines.append(
            f"- {KIND_WORDS[kind]} recipes with every model of the architecture held out: "
            f"median {percent(row.median)}, mean {percent(row.mean)} "
            f"(naive {percent(row.naive_median)}), {row.rows} rows."
        )
    for kind, row in numbers.newer.items():
        lines.append(
            f"- {KIND_WORDS[kind]} recipes of {row.since:.0f} and later predicted from everything older: median "
            f"{percent(row.median)}, bias {percent(row.bias)} (naive {percent(row.naive_median)}), "
            f"{row.rows} rows."
        )
    lines += ["", "## Noise floor", "", "Spread of repeated configurations (largest over smallest, minus 1):", ""]
    lines += [
        f"- {source}: median {percent(row.median)}, 90 % below {percent(row.ninety)} "
        f"({row.configurations} configurations)"
        for source, row in numbers.noise.items()
    ]
    return [*lines, ""]


def _ablation(numbers: Accuracy) -> list[str]:
    rows = numbers.ablation
    if not rows:
        return []
    parts = list(rows[0].parts)
    lines = [
        "## Ablation of terms",
        "",
        "Median error on held-out workloads without the term, and Spearman within a workload where there are several "
        "configurations.",
        "",
        "| without | " + " | ".join(parts) + " |",
        "|---|" + "--:|" * len(parts),
    ]
    for row in rows:
        cells = []
        for part in parts:
            one = row.parts.get(part)
            spearman = "" if one is None or one.spearman is None else f"; {one.spearman:.2f}"
            cells.append("–" if one is None else f"{percent(one.median)}{spearman}")
        lines.append(f"| {row.term} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _worst(numbers: Accuracy) -> list[str]:
    lines = [
        "## Worst rows of each source",
        "",
        "| row | model | chip | mesh, micro-batch | measured s | estimate s | why |",
        "|---|---|---|---|--:|--:|---|",
    ]
    lines += [
        f"| {row.id} | {row.model} | {row.chip} {row.precision} | {row.mesh}, {row.micro_batch} | "
        f"{row.measured_s:.2f} | {row.estimate_s:.2f} | {row.why} |"
        for row in numbers.worst
    ]
    return [*lines, ""]


def _by_reason(unmapped: Mapping[str, str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = defaultdict(list)
    for row, reason in unmapped.items():
        result[reason].append(row)
    return dict(result)
