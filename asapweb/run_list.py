"""The list of experiments: its columns, what is known of each row, and how the step time of one kind of run moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from django.db.models import F, Max, QuerySet

from diagnosis.models import DiagnosisRecord
from experiments import bars
from experiments.models import Experiment, Origin
from formatting.cells import csv_line
from proposals.models import Measurement, Proposal

#: Heading, name to sort by (empty where it is not sorted by), class of the cells (`opt-l`: left out on narrower screens
#: unless it was chosen) and whether large values come first.
COLUMNS = {
    "state": ("State", "", "opt", False),
    "hardware": ("Hardware", "hardware", "opt opt-l", False),
    "model": ("Model", "model", "opt opt-l", False),
    "mesh": ("Mesh", "", "opt opt-l", False),
    "bottleneck": ("Bottleneck", "bottleneck", "opt", False),
    "parts": ("Parts of the step", "", "opt", False),
    "step": ("Step time", "step", "n opt", True),
    "mfu": ("MFU", "", "n opt", True),
    "gain": ("Predicted gain", "gain", "n", True),
    "measured": ("Measured gain", "", "n opt", True),
    "updated": ("Updated", "updated", "n opt", True),
}
SHOWN = ("state", "mesh", "bottleneck", "parts", "step", "mfu", "gain", "updated")
_TABLE = (
    "experiment", "name", "state", "chip", "chips", "model", "mesh", "bottleneck", "step_time_s", "mfu",
    "predicted_speedup", "measured_speedup", "updated",
)  # fmt: skip
#: Runs of one kind from which on their step times are drawn, and the most that are.
FEWEST, MOST = 4, 400
#: A step time that moves by less is no change, whatever its noise; noise below this is none of a cluster's.
LEAST_CHANGE, LEAST_NOISE = 0.01, 0.002


def columns(chosen: Sequence[str]) -> list[str]:
    """Return the keys of the columns to show, in the order of the table; the usual ones where none is chosen."""
    return [key for key in COLUMNS if key in chosen] or list(SHOWN)


@dataclass(frozen=True)
class ListedRun:
    """Hold one experiment of the list.

    terms: seconds by part of the step (shares, where no step is known).  measured: the best speed-up that a launched
    proposal reached, per token.  profile: key of what was diagnosed.  low80, high80: of the predicted gain of the
    first proposal, per token.
    """

    item: Experiment
    mfu: float | None = None
    terms: list[bars.Term] = field(default_factory=list)
    measured: float | None = None
    profile: int | None = None
    low80: float | None = None
    high80: float | None = None

    @property
    def predicted(self) -> bool:
        return self.item.origin == Origin.STEP_TIME

    @property
    def total(self) -> float:
        return sum(term.value for term in self.terms)


def rows(experiments: Iterable[Experiment]) -> list[ListedRun]:
    """Return the experiments with what their newest diagnosis and their proposals say: three queries."""
    listed = list(experiments)
    keys = [item.pk for item in listed]
    records = DiagnosisRecord.objects.filter(run__experiment__in=keys).order_by("run__experiment_id", "-run_id")
    fields = ("run__experiment_id", "run__profile_id", "data__kpis__mfu", "data__breakdown_share")
    newest = {row[0]: row[1:] for row in records.distinct("run__experiment_id").values_list(*fields)}
    gains = dict(
        Measurement.objects.filter(proposal__experiment__in=keys, status=Measurement.Status.MEASURED)
        .values_list("proposal__experiment_id")
        .annotate(best=Max("speedup"))
    )
    ends = ("data__predicted__speedup_low80", "data__predicted__speedup_high80")
    ranges = {row[0]: row[1:] for row in first_proposals(keys).values_list("experiment_id", *ends)}
    made = []
    for item in listed:
        profile, mfu, shares = newest.get(item.pk, (None, None, None))
        scale = item.step_time_s or 1.0
        parts = {key: share * scale for key, share in (shares or {}).items()}
        terms = bars.step_terms(parts, item.axis_roles)
        made.append(ListedRun(item, mfu, terms, gains.get(item.pk), profile, *ranges.get(item.pk, (None, None))))
    return made


def first_proposals(experiments: Sequence[int]) -> QuerySet[Proposal]:
    """Return the first proposals of all plans of experiments, of the newest plan last."""
    return Proposal.objects.filter(experiment__in=experiments, rank=1).order_by("plan_id")


def table(experiments: QuerySet[Experiment]) -> Iterator[str]:
    """Yield the whole list as lines of CSV, times in seconds, gains per token."""
    yield csv_line(_TABLE)
    batch: list[Experiment] = []
    for item in experiments.iterator(500):
        batch.append(item)
        if len(batch) == 500:
            yield from _lines(batch)
            batch = []
    yield from _lines(batch)


def _lines(batch: Sequence[Experiment]) -> Iterator[str]:
    for row in rows(batch):
        item = row.item
        yield csv_line((
            item.pk, item.name, item.state, item.chip, item.chips, item.model_name, item.placement, item.bottleneck,
            item.step_time_s, row.mfu, item.best_speedup, row.measured, item.updated_at.isoformat(),
        ))  # fmt: skip


@dataclass(frozen=True)
class SeriesPoint:
    """Hold one run of a series and where it is drawn, in percent of the plot, from its left and its top."""

    item: Experiment
    x: str
    y: str


@dataclass(frozen=True)
class Level:
    """Hold the runs between two changes.

    change: of the step time against the level before, as a share of it; None at first.
    """

    x: str
    until: str
    y: str
    step_s: float
    change: float | None
    since: datetime


@dataclass(frozen=True)
class Series:
    """Hold the step times of runs of one model on one number of one chip, in order of time."""

    points: list[SeriesPoint]
    levels: list[Level]


def series(experiments: QuerySet[Experiment]) -> Series | None:
    """Return how the step time of the listed runs moved; None where they are not of one kind, or too few."""
    kinds = experiments.order_by().values_list("model_name", "chip", "chips").distinct()[:2]
    if len(kinds) != 1:
        return None
    timed = experiments.filter(step_time_s__gt=0).order_by(F("created_at").desc(), "-pk")[:MOST]
    runs = list(timed)[::-1]
    if len(runs) < FEWEST:
        return None
    times = np.array([run.step_time_s for run in runs])
    least, top = float(times.min()) * 0.97, float(times.max()) * 1.03

    def x(place: float) -> str:
        return f"{2 + 96 * place / (len(runs) - 1):.2f}%"

    def y(seconds: float) -> str:
        return f"{8 + 84 * (top - seconds) / (top - least):.2f}%"

    begins = [0, *changes(times)]
    levels: list[Level] = []
    for begin, end in zip(begins, [*begins[1:], len(runs)], strict=True):
        middle = float(np.median(times[begin:end]))
        change = middle / levels[-1].step_s - 1.0 if levels else None
        levels.append(Level(x(max(begin - 0.4, 0)), x(min(end - 0.6, len(runs) - 1)), y(middle), middle, change,
                            runs[begin].created_at))  # fmt: skip
    points = [
        SeriesPoint(run, x(place), y(float(time))) for place, (run, time) in enumerate(zip(runs, times, strict=True))
    ]
    return Series(points, levels)


def changes(times: Any) -> list[int]:
    """Return the indices at which a series of positive times begins a new level.

    Binary segmentation of the logarithms: a split stays if it removes more than four noise variances times the
    logarithm of the length (as information criteria ask of a level and its place), and moves the
    level by LEAST_CHANGE or more.  The noise is that of neighbours, which a change of level hardly touches.
    """
    logs = np.log(np.asarray(times, float))
    if len(logs) < 2:
        return []
    noise = max(float(np.median(np.abs(np.diff(logs)))) / 0.954, LEAST_NOISE)

    def split(begin: int, end: int) -> list[int]:
        part = logs[begin:end]
        if len(part) < 2:
            return []
        sums, counts = np.cumsum(part), np.arange(1, len(part))
        left, right = sums[:-1] / counts, (sums[-1] - sums[:-1]) / (len(part) - counts)
        removed = counts * (len(part) - counts) / len(part) * (left - right) ** 2
        best = int(np.argmax(removed))
        moved = abs(float(left[best] - right[best]))
        if removed[best] <= 4.0 * noise**2 * np.log(len(logs)) or moved < LEAST_CHANGE:
            return []
        place = begin + best + 1
        return [*split(begin, place), place, *split(place, end)]

    return split(0, len(logs))
