"""What became of proposals, as the pages show it: prediction beside measurement, on one scale of speed-ups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from django.db.models import QuerySet

from experiments.models import Experiment
from proposals.models import Measurement, Proposal
from proposals.reliability import Group, groups
from proposals.services import measuring, unmeasured

#: Columns that say how predictions did.
FIGURES = ("speedup", "within_range", "predicted_log_gain", "predicted_confidence")


@dataclass(frozen=True)
class MeasuredMemory:
    """Peak per chip, in bytes."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.measured / self.predicted - 1.0


@dataclass(frozen=True)
class Loop:
    """Where an approved proposal stands between approval and its result.

    candidates: experiments that look like its run, for a person to confirm.
    """

    proposal: Proposal
    measurement: Measurement | None
    candidates: Sequence[Experiment] = ()

    @property
    def state(self) -> str:
        """`waiting`, `linked`, `refused`, `measured` or `failed`."""
        made = self.measurement
        if made is None or (made.status == Measurement.Status.LINKED and made.experiment is None):
            return "waiting"
        return str(made.status)

    @property
    def row(self) -> Row:
        assert self.measurement is not None
        return row(self.measurement)

    @property
    def scale(self) -> float:
        return scale([self.row])

    @property
    def memory(self) -> MeasuredMemory | None:
        """None unless the peak was both predicted and measured."""
        predicted = self.proposal.value.predicted.hbm_per_chip_bytes
        run = self.measurement.run if self.measurement else None
        peak = run.profile.summary.get("memory_peak_bytes") if run else None
        return MeasuredMemory(predicted.total, peak) if predicted and peak else None


def loop(proposal: Proposal) -> Loop | None:
    """None where the proposal is not approved, or has nothing to measure."""
    if proposal.status != Proposal.Status.APPROVED or proposal.kind == "keep":
        return None
    made = getattr(proposal, "measurement", None)
    open_ = made is None or made.status == Measurement.Status.REFUSED
    return Loop(proposal, made, unmeasured.candidates(proposal) if open_ else ())


@dataclass(frozen=True)
class Row:
    """One result with the 80 % interval of its predicted speed-up; None where there is none."""

    made: Measurement
    low: float | None
    high: float | None


def row(made: Measurement) -> Row:
    low, high = measuring.range80(made) or (None, None)
    return Row(made, low, high)


@dataclass(frozen=True)
class Results:
    """Results of a team.  rows: those of one page; scale: the largest speed-up drawn there.

    measurements: all of them, with `FIGURES` only.
    """

    rows: list[Row]
    scale: float
    measurements: list[Measurement]

    @property
    def total(self) -> int:
        return len(self.measurements)

    @property
    def measured(self) -> int:
        return sum(item.speedup is not None for item in self.measurements)

    @property
    def failed(self) -> int:
        return self.total - self.measured

    @property
    def ranged(self) -> int:
        """Of how many it is known whether they fell into the 80 %."""
        return sum(item.within_range is not None for item in self.measurements)

    @property
    def inside(self) -> int:
        return sum(bool(item.within_range) for item in self.measurements)

    @property
    def outcomes(self) -> list[tuple[float, bool]]:
        """The stated confidence of each result, and whether the step got faster per token; a failed run did not."""
        return [
            (item.predicted_confidence, item.speedup is not None and item.speedup > 1.0)
            for item in self.measurements
            if item.predicted_confidence is not None
        ]

    @property
    def brier(self) -> float | None:
        """Mean squared difference between the stated confidence and what happened (1: faster per token, 0: not)."""
        outcomes = self.outcomes
        return sum((stated - came) ** 2 for stated, came in outcomes) / len(outcomes) if outcomes else None

    @property
    def reliability(self) -> tuple[Group, ...]:
        """Stated confidence against what came, in groups; empty while there are too few results."""
        return groups(self.outcomes)

    @property
    def median_error(self) -> float | None:
        """Median of the absolute errors."""
        errors = [abs(item.error) for item in self.measurements if item.error is not None]
        return median(errors) if errors else None


def results(measurements: QuerySet[Measurement], shown: Iterable[Measurement] = ()) -> Results:
    """measurements: all results; shown: those of the page, with what a row shows."""
    rows = [row(item) for item in shown]
    return Results(rows, scale(rows), list(measurements.select_related(None).order_by().only(*FIGURES)))


def scale(rows: Sequence[Row]) -> float:
    """The end of the axis: a little beyond the largest speed-up, at least 1.2."""
    reach = ((item.high, item.made.predicted_speedup, item.made.speedup) for item in rows)
    return max([1.2, *(value * 1.04 for each in reach for value in each if value is not None)])
