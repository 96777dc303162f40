"""Step time by trial: what was predicted before it, what it took, the best so far, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, inf, isfinite, log, log10

from campaigns.models import Campaign, Trial, TrialStatus
from campaigns.presentation import cause_words
from formatting import by_origin, limit, seconds, span

#: Points that are drawn; of more trials every improvement and a sample of the others.
MOST_POINTS = 400
#: Trials up to which each has its 80 % interval: of more the bars would cover one another.
MOST_INTERVALS = 80
#: Of the height of the step times, how far intervals are followed above and below them.
BEYOND = 1.5
#: Percent from the top at which step times end; failed trials are in a lane below.
TOP, BOTTOM, FAILED = 5.0, 86.0, 95.0
#: Ticks of the axis of trials, at most.
MOST_TICKS = 8
_STEPS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


@dataclass(frozen=True)
class Interval:
    """The prediction before the trial, in percent from the top.  top, bottom: of 80 % of the cases, cut at the box."""

    top: float
    bottom: float
    predicted: float


@dataclass(frozen=True)
class Point:
    """In percent from the left and the top.  kind: `better`, `worse`, `failed`, or `open` where it has not ended."""

    x: float
    y: float
    kind: str
    title: str
    interval: Interval | None = None


@dataclass(frozen=True)
class Mark:
    """A grid line or a line to compare with, in percent from the top."""

    y: float
    label: str
    kind: str = "grid"


@dataclass(frozen=True)
class Trajectory:
    """points: trials; best: corners of the line of the best so far; ticks: numbers of trials with their place;
    modelled: whether step times are the performance model's; shown: how many of all trials are drawn; inside, checked:
    of how many measured step times that were predicted the interval held."""

    points: Sequence[Point]
    best: Sequence[tuple[float, float]]
    best_label: Mark
    marks: Sequence[Mark]
    ticks: Sequence[tuple[float, int]]
    modelled: bool
    shown: int
    total: int
    intervals: bool
    failed: bool
    open: bool
    inside: int
    checked: int


@dataclass(frozen=True)
class _Scale:
    """low, high: logarithms of seconds at the bottom and the top; last: the number of the last trial."""

    low: float
    high: float
    last: int

    def x(self, number: int) -> float:
        return 2.0 + 96.0 * number / max(1, self.last)

    def y(self, value: float) -> float:
        at = (self.high - log(value)) / (self.high - self.low)
        return TOP + (BOTTOM - TOP) * min(max(at, 0.0), 1.0)


def trajectory(campaign: Campaign, trials: Sequence[Trial]) -> Trajectory | None:
    """On a logarithmic axis; None before any trial ran."""
    drawn = [t for t in trials if t.status != TrialStatus.CANCELLED]
    ran = [trial for trial in drawn if trial.step_time_s]
    if not ran:
        return None
    intervals = len(drawn) <= MOST_INTERVALS
    scale = _scale(campaign, drawn, intervals)
    points, best, corners = [], inf, []
    for trial in drawn:
        interval = _interval(trial, scale) if intervals else None
        x = scale.x(trial.number)
        if trial.status == TrialStatus.FAILED:
            points.append(Point(x, FAILED, "failed", _title(trial), interval))
        elif not trial.step_time_s:
            if interval is not None:
                points.append(Point(x, interval.predicted, "open", _title(trial), interval))
        else:
            better = trial.step_time_s < best
            if better:
                if isfinite(best):
                    corners.append((x, scale.y(best)))
                best = trial.step_time_s
                corners.append((x, scale.y(best)))
            kind = "better" if better else "worse"
            points.append(Point(x, scale.y(trial.step_time_s), kind, _title(trial), interval))
    corners.append((scale.x(max(trial.number for trial in drawn if _ended(trial))), scale.y(best)))
    fastest = min(ran, key=lambda trial: trial.step_time_s or inf)
    checked = [t for t in ran if not t.modelled and t.predicted_low_s and t.predicted_high_s]
    shown = _thinned(points)
    return Trajectory(
        points=shown,
        best=corners,
        best_label=Mark(scale.y(best), f"best {_time(fastest)}", "best"),
        marks=_marks(campaign, drawn, scale),
        ticks=_ticks(scale),
        modelled=all(trial.modelled for trial in ran),
        shown=len(shown),
        total=len(points),
        intervals=any(point.interval for point in shown),
        failed=any(point.kind == "failed" for point in shown),
        open=any(point.kind == "open" for point in shown),
        inside=sum(_inside(trial) for trial in checked),
        checked=len(checked),
    )


def _ended(trial: Trial) -> bool:
    return trial.status in (TrialStatus.DONE, TrialStatus.FAILED)


def _inside(trial: Trial) -> bool:
    return (trial.predicted_low_s or inf) <= (trial.step_time_s or 0.0) <= (trial.predicted_high_s or 0.0)


def _scale(campaign: Campaign, trials: Sequence[Trial], intervals: bool) -> _Scale:
    """Every step time and prediction, and of the intervals as much as leaves these room."""
    named = [trial.step_time_s for trial in trials if trial.step_time_s]
    if campaign.expert_step_time_s:
        named.append(campaign.expert_step_time_s)
    if intervals:
        named += [trial.predicted_step_time_s for trial in trials if trial.predicted_step_time_s]
    low, high = log(min(named)), log(max(named))
    room = BEYOND * max(high - low, 0.1)
    lows = [log(trial.predicted_low_s) for trial in trials if intervals and trial.predicted_low_s]
    highs = [log(trial.predicted_high_s) for trial in trials if intervals and trial.predicted_high_s]
    bottom, top = max(min([low, *lows]), low - room), min(max([high, *highs]), high + room)
    return _Scale(bottom - 0.03, top + 0.03, max(trial.number for trial in trials))


def _interval(trial: Trial, scale: _Scale) -> Interval | None:
    low, high, predicted = trial.predicted_low_s, trial.predicted_high_s, trial.predicted_step_time_s
    if not (low and high and predicted):
        return None
    return Interval(scale.y(high), scale.y(low), scale.y(predicted))


def _title(trial: Trial) -> str:
    """What a trial's mark says under the pointer."""
    name = "Current configuration" if trial.number == 0 else f"Trial {trial.number}"
    if trial.status == TrialStatus.FAILED:
        said = f"{name}: {cause_words(trial.failure) or 'failed'}"
    elif not trial.step_time_s:
        said = f"{name}: {trial.get_status_display().lower()}"
    else:
        said = f"{name}: {_time(trial)} {'predicted' if trial.modelled else 'measured'}"
    if trial.predicted_step_time_s and trial.predicted_low_s and trial.predicted_high_s:
        predicted = by_origin(trial.predicted_step_time_s, "s", "predicted")
        interval = span(trial.predicted_low_s, trial.predicted_high_s, "s", 2)
        said += f"; before the trial {predicted} predicted, 80 % interval {interval}"
    return said


def _time(trial: Trial) -> str:
    return str(by_origin(trial.step_time_s or 0.0, "s", "predicted" if trial.modelled else "measured"))


def _marks(campaign: Campaign, trials: Sequence[Trial], scale: _Scale) -> list[Mark]:
    marks = [Mark(scale.y(value), limit(value, "s")) for value in _grid(scale)]
    first = next((trial for trial in trials if trial.number == 0 and trial.step_time_s), None)
    if first is not None:
        marks.append(Mark(scale.y(first.step_time_s or 1.0), f"current configuration {_time(first)}", "baseline"))
    if campaign.expert_step_time_s:
        said = f"hand-tuned {seconds(campaign.expert_step_time_s)}"
        marks.append(Mark(scale.y(campaign.expert_step_time_s), said, "expert"))
    return marks


def _grid(scale: _Scale) -> list[float]:
    """Three to six round step times."""
    decades = range(floor(scale.low / log(10.0)) - 1, ceil(scale.high / log(10.0)) + 1)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), _STEPS):
        values = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in values if scale.low < log(value) < scale.high]
        if len(inside) >= 3:
            return inside[:: -(-len(inside) // 6)]
    low, high = exp(scale.low), exp(scale.high)
    unit = 10.0 ** floor(log10((high - low) / 2.0))
    inside = [n * unit for n in range(ceil(low / unit), floor(high / unit) + 1)]
    return inside[:: max(1, -(-len(inside) // 6))]


def _ticks(scale: _Scale) -> list[tuple[float, int]]:
    step = next(s * 10**d for d in range(9) for s in (1, 2, 5) if scale.last / (s * 10**d) <= MOST_TICKS)
    return [(scale.x(number), number) for number in range(0, scale.last + 1, step)]


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Every improvement, and of the others as many as can be distinguished."""
    if len(points) <= MOST_POINTS:
        return points
    better = [point for point in points if point.kind == "better"][-MOST_POINTS // 2 :]
    others = [point for point in points if point.kind != "better"]
    step = max(1, -(-len(others) // (MOST_POINTS - len(better))))
    return [*others[::step], *better]
