"""The errors of held-out runs, as `evaluation.accuracy` writes them to asapweb/explore/accuracy.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from asapweb.explore.report import ACCURACY_FILE


@dataclass(frozen=True)
class ErrorScores:
    """Hold the errors of `rows` held-out runs: |estimate / measured − 1|, and the naive model's on the same rows; bias:
    the median of estimate / measured − 1.  in_80_range: share of them inside their 80 % interval, None where none was
    made."""

    rows: int
    median: float
    mean: float
    bias: float
    naive_median: float
    naive_mean: float
    in_80_range: float | None = None


@dataclass(frozen=True, kw_only=True)
class NewerScores(ErrorScores):
    """Hold the errors of runs whose software is of the year `since` or later, predicted from everything older."""

    since: Annotated[float, Field(alias="from")]


@dataclass(frozen=True)
class RankingScores:
    """Over workloads whose configurations were ranked: Spearman of predicted and measured, None where no order was
    predicted; regret of the first choice and of the best of three, relative; runs until one is as good as the best."""

    workloads: int
    spearman: float | None
    regret_median: float
    regret_mean: float
    three_median: float
    three_mean: float
    trials_median: float


@dataclass(frozen=True)
class Rankings:
    ours: RankingScores
    naive: RankingScores


@dataclass(frozen=True)
class Noise:
    """Largest over smallest time of a repeated configuration, less one: median and 90 % quantile."""

    configurations: int
    median: float
    ninety: float


@dataclass(frozen=True)
class FarOff:
    """A run whose prediction, its workload held out, is far off.  Seconds; error: estimate / measured − 1."""

    id: str
    part: str
    model: str
    chip: str
    precision: str
    mesh: str
    micro_batch: int | None
    software: str
    measured_s: float
    estimate_s: float
    error: float
    why: str


@dataclass(frozen=True)
class Point:
    """A run and its prediction with its workload held out, seconds.  kind: of chip, `tpu` or `gpu`."""

    id: str
    source: str
    model: str
    chip: str
    kind: str
    mixture: bool
    measured_s: float
    estimate_s: float


@dataclass(frozen=True)
class Agreement:
    """With OptiCo's hand-tuned runs.  spearman: of time per token over runs that ran.  regret: time per token of the
    run predicted best over the best measured, less one, at the batch most runs have; regret_all: over all batches.
    missed, false_alarms: runs whose memory verdict is wrong.  memory_median, memory_worst: relative errors of the peak.
    time_bias: mean log(predicted / measured)."""

    spearman: float
    regret: float
    first_choice: str
    out_of_memory: int
    missed: int
    false_alarms: int
    memory_median: float
    memory_worst: float
    time_bias: float
    regret_all: float


@dataclass(frozen=True)
class PartWithout:
    """Median error on held-out workloads, and Spearman where there are several configurations of one."""

    median: float
    spearman: float | None


@dataclass(frozen=True)
class Ablation:
    """By part of the report, with everything or without a term of the model."""

    term: str
    parts: dict[str, PartWithout]


@dataclass(frozen=True)
class Accuracy:
    """Hold how far predictions of step times were off on runs that the fit had not seen.

    rows: measured runs, of so many configurations and workloads.  distances[kind of chip][distance], parts[part][
    distance], chips[chip][what was held out], architecture[kind] and newer[kind]: errors.  ranking, noise: by source.
    unmapped: why a published run is not used, by run.  ablation: None where it was never made.
    """

    date: str
    rows: int
    configurations: int
    workloads: int
    distances: dict[str, dict[str, ErrorScores]]
    parts: dict[str, dict[str, ErrorScores]]
    chips: dict[str, dict[str, ErrorScores]]
    ranking: dict[str, Rankings]
    architecture: dict[str, ErrorScores]
    newer: dict[str, NewerScores]
    noise: dict[str, Noise]
    worst: tuple[FarOff, ...]
    points: tuple[Point, ...]
    optico: Agreement
    unmapped: dict[str, str]
    ablation: tuple[Ablation, ...] | None = None


def load_accuracy() -> Accuracy:
    """The numbers of the last `make fit`."""
    return TypeAdapter(Accuracy).validate_json(ACCURACY_FILE.read_bytes())
