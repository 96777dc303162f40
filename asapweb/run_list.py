"""The list of experiments: its columns, and what is known of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from django.db.models import Max, QuerySet

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
