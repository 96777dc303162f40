"""docs/accuracy-compiled.md: predicted memory and traffic beside the TPU compiler's.

`python -m evaluation.compiled_report` writes it.
The rows are those of `evaluation.compiled` and of the landscapes (`evaluation.campaigns.compiled_programs`).  Nothing
is fitted to them, but terms of the memory model were read in the compiler's programs, with the first SEEN in view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluation import compiled
from evaluation.campaigns import compiled_programs
from evaluation.report import wrapped
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config
from proposals.compiling import predicted

PAGE = Path(__file__).parents[1] / "docs" / "accuracy-compiled.md"
WORST = 8
#: A group of axes that carries less than this share of a step's bytes says little.
SMALL = 0.05
#: Configurations that had been compiled when the terms of the memory model were last chosen.
SEEN = 290


@dataclass(frozen=True)
class Compared:
    """One configuration.  seen: whether the terms of the memory model were chosen with it in view."""

    config: ExperimentConfig
    row: dict[str, Any]
    predicted_bytes: float
    seen: bool

    @property
    def compiled_bytes(self) -> float | None:
        """The planned peak.  What the compiler says of a program that does not fit is no peak: it stops before it
        schedules, and gives a lower bound."""
        found: float | None = self.row["peak_bytes"]
        return found

    @property
    def ratio(self) -> float | None:
        """Predicted over compiled memory, None where there is no peak."""
        return self.predicted_bytes / self.compiled_bytes if self.compiled_bytes else None

    @property
    def says_fits(self) -> bool:
        return bool(self.predicted_bytes <= self.row["capacity_bytes"])


def rows() -> tuple[dict[str, Any], ...]:
    return (*compiled.rows(), *compiled_programs.rows())


def compared() -> list[Compared]:
    found = []
    for number, row in enumerate(rows()):
        config, _ = parse_config(row["config"])
        total = predicted.memory_bytes(config)
        if total is not None and row["outcome"] in ("fits", "out_of_memory"):
            found.append(Compared(config, row, total, number < SEEN))
    return found


def write() -> None:
    PAGE.write_text(wrapped("\n".join(lines(compared())) + "\n"), encoding="utf-8")


def lines(items: Sequence[Compared]) -> Iterator[str]:
    """The page."""
    days = sorted({item.row["date"] for item in items})
    versions = sorted({f"jax {r['versions']['jax']}, libtpu {r['versions']['libtpu']}" for r in (i.row for i in items)})
    workloads = {item.config.name for item in items}
    others = [row for row in rows() if row["outcome"] not in ("fits", "out_of_memory")]
    otherwise = f" {len(others)} more ended otherwise ({_counts(others)})." if others else ""
    yield "# The performance model against the TPU compiler"
    yield ""
    yield (
        f"{len(items)} configurations of {len(workloads)} workloads, compiled at quick effort between {days[0]} and "
        f"{days[-1]} with {'; '.join(versions)}.{otherwise} The step is the "
        "[reference step](compile-check.md#the-reference-step). `python -m evaluation.compiled_report` writes this "
        "page from `evaluation/data/compiled`, which `python -m evaluation.compiled` and "
        "`python -m evaluation.campaigns.compiled_programs` extend."
    )
    yield ""
    yield (
        "No parameter is fitted to these results, but they are not all held out: the XLA terms of the memory model "
        f"were derived from the compiler's programs with the first {SEEN} results in view "
        "([performance-model.md](performance-model.md#memory)). The rows *compiled afterwards* are two models on "
        "topologies not among the first. The last term chosen was that groups of 64 chips and more have no windowed "
        "einsum; before it, the median error of the 155 compiled after all other terms had been chosen was 5.1 %."
    )
    yield ""
    yield (
        "Configurations are drawn at random; for campaigns, only from those predicted to need at most 120 % of the "
        "memory. Memory is the planned peak, which quick effort overstates ([compile-check.md](compile-check.md)). For "
        "a program that does not fit, the compiler gives only a lower bound (the same for three remat policies of one "
        "mesh), so these programs count only in the table of what fits."
    )
    yield ""
    yield "## Memory per chip"
    yield ""
    yield "Error: |log(predicted / compiled)|; bias: the median of the signed logarithm."
    yield ""
    yield "| configurations | n | median | 90 % of errors within | bias |"
    yield "|---|--:|--:|--:|--:|"
    for title, chosen in _groups(items):
        yield _row(title, chosen)
    yield ""
    agree = sum(item.says_fits == (item.row["outcome"] == "fits") for item in items)
    yield f"Whether a configuration fits is predicted correctly for {agree} of {len(items)}."
    yield ""
    yield from _confusion(items)
    yield ""
    yield "Largest errors:"
    yield ""
    yield "| configuration | remat, sharding, micro-batches | compiled | predicted |"
    yield "|---|---|--:|--:|"
    sized = [item for item in items if item.ratio]
    for item in sorted(sized, key=lambda item: -abs(np.log(item.ratio or 1.0)))[:WORST]:
        train = item.config.training
        yield (
            f"| {item.config.name}, {item.config.mesh.text()} | {train.remat}, {train.weight_sharding}, "
            f"{train.grad_accum} | {(item.compiled_bytes or 0.0) / 1e9:.1f} GB | {item.predicted_bytes / 1e9:.1f} GB |"
        )
    yield ""
    yield from _traffic(items)


def _groups(items: Sequence[Compared]) -> Iterator[tuple[str, list[Compared]]]:
    def those(keep: Callable[[Compared], bool]) -> list[Compared]:
        return [item for item in items if item.ratio and keep(item)]

    yield "all", those(lambda _: True)
    yield "compiled afterwards", those(lambda item: not item.seen)
    for chip in sorted({item.config.hardware.chip for item in items}):
        yield chip, those(lambda item, chip=chip: item.config.hardware.chip == chip)  # type: ignore[misc]
    yield "dense", those(lambda item: not (item.config.model and item.config.model.experts))
    yield "MoE", those(lambda item: bool(item.config.model and item.config.model.experts))
    for remat in ("full", "minimal", "none"):
        yield f"remat {remat}", those(lambda item, remat=remat: item.config.training.remat == remat)  # type: ignore[misc]
    for sharding in ("fsdp", "zero1"):
        yield sharding, those(lambda item, s=sharding: item.config.training.weight_sharding == s)  # type: ignore[misc]
    yield "tensor axis", those(lambda item: item.config.mesh.size("model") > 1)
    yield "no tensor axis", those(lambda item: item.config.mesh.size("model") == 1)
    yield "micro-batches", those(lambda item: item.config.training.grad_accum > 1)


def _row(title: str, items: Sequence[Compared]) -> str:
    if not items:
        return f"| {title} | 0 | – | – | – |"
    logs = np.log([item.ratio or 1.0 for item in items])
    errors = np.abs(logs)
    return (
        f"| {title} | {len(items)} | {100 * np.median(errors):.1f} % | {100 * np.quantile(errors, 0.9):.0f} % | "
        f"{100 * np.median(logs):+.1f} % |"
    )


def _confusion(items: Sequence[Compared]) -> Iterator[str]:
    yield "| compiled | predicted to fit | predicted not to fit |"
    yield "|---|--:|--:|"
    for outcome, title in (("fits", "fits"), ("out_of_memory", "out of memory")):
        chosen = [item for item in items if item.row["outcome"] == outcome]
        yes = sum(item.says_fits for item in chosen)
        yield f"| {title} | {yes} | {len(chosen) - yes} |"


def _traffic(items: Sequence[Compared]) -> Iterator[str]:
    yield "## Bytes sent per mesh axis"
    yield ""
    yield (
        "Groups of axes that carry at least 5 % of a step's compiled bytes, for programs that fit. The compiler "
        "reduces small gradients with all-reduces and uses windowed einsums; the model counts all-gathers and "
        "reduce-scatters."
    )
    yield ""
    yield "| roles | n | median of predicted / compiled | interquartile range |"
    yield "|---|--:|--:|--:|"
    found: dict[str, list[float]] = {}
    for item in items:
        compiled: dict[str, float] = item.row["sent_bytes_by_axes"]
        expected = {"+".join(axes): sent for axes, sent in predicted.sent_bytes(item.config).items()}
        for axes, sent in compiled.items():
            if sent >= SMALL * sum(compiled.values()):
                found.setdefault(axes, []).append(expected.get(axes, 0.0) / sent)
    for axes, ratios in sorted(found.items(), key=lambda pair: -len(pair[1])):
        low, high = np.quantile(ratios, (0.25, 0.75))
        yield f"| {axes.replace('+', ' × ')} | {len(ratios)} | {np.median(ratios):.2f} | {low:.2f}–{high:.2f} |"


def _counts(found: Sequence[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for row in found:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    write()
