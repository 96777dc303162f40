"""When every op of a scenario runs on every core: printed times exactly, the rest of the busy step in proportion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from evaluation.reconstruct.scenarios import Scenario
from evaluation.reconstruct.step import StepOp

#: Start or end of a transfer that runs beside other ops.  Assumed; too short to matter.
HIDDEN_PS = 2_000_000


@dataclass(frozen=True)
class TimedOp:
    op: StepOp
    start_ps: int
    duration_ps: int


@dataclass(frozen=True)
class CoreTimeline:
    """One core's ops, and the start of each complete step.  All from the start of the recording."""

    core: int
    step_starts_ps: tuple[int, ...]
    ops: tuple[TimedOp, ...]


class _PrintedDurations:
    """Deals a printed total out over its occurrences in whole picoseconds, so that the sum is exact."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._dealt: Counter[int] = Counter()

    def next(self, index: int) -> int:
        row = self._scenario.printed.ops[index]
        number = self._dealt[index]
        self._dealt[index] += 1
        if row.total_ps is None or row.occurrences is None:
            return round(self._scenario.average_ps(index))
        return row.total_ps * (number + 1) // row.occurrences - row.total_ps * number // row.occurrences


def timelines(scenario: Scenario) -> Iterator[CoreTimeline]:
    """One timeline per recorded core, in the order of the cores."""
    step = scenario.ops()
    whole = step.in_order()
    leading = step.backward * scenario.leading_iterations + step.tail if scenario.leading_iterations else []
    printed = _PrintedDurations(scenario)
    pace = _Pace(scenario, whole)
    for core in range(scenario.hosts * scenario.cores_per_host):
        events: list[TimedOp] = []
        starts: list[int] = []
        # The ops before the first complete step run at the pace of a whole step.
        if leading:
            events += _lay_out(leading, 0, printed, pace)
            first = events[-1].start_ps + events[-1].duration_ps + (scenario.step_ps - scenario.busy_ps) // 2
        else:
            first = 0
        for number in range(scenario.steps):
            start = first + number * scenario.step_ps
            starts.append(start)
            ops = _without_omitted(scenario, whole, core, number)
            # The idle time stands at both ends.  XProf drops an op that starts at the very start of its step.
            idle = max(2, scenario.step_ps - scenario.busy_ps)
            step_pace = pace if len(ops) == len(whole) else _Pace(scenario, ops)
            events += _lay_out(ops, start + idle // 2, printed, step_pace)
        yield CoreTimeline(core, tuple(starts), tuple(events))


def _without_omitted(scenario: Scenario, ops: list[StepOp], core: int, step: int) -> list[StepOp]:
    left = {o.printed: o.on_core(core) for o in scenario.omissions if o.step == step}
    kept: list[StepOp] = []
    for op in ops:
        if op.printed is not None and left.get(op.printed, 0) > 0:
            left[op.printed] -= 1
        else:
            kept.append(op)
    return kept


def _is_collective(op: StepOp) -> bool:
    return any(word in op.name for word in ("all-reduce", "all-gather", "reduce-scatter", "collective"))


class _Pace:
    """Picoseconds per unit of weight of the ops that the paper does not print, for a step made of `ops`.

    The printed communication is the time of the collectives that it counts, the printed ones among them; exposed ones
    beside those share what is assumed, and fillers what is left of the busy time.  Raises ValueError if nothing is
    left.
    """

    def __init__(self, scenario: Scenario, ops: list[StepOp]) -> None:
        hidden = HIDDEN_PS * sum(op.timing == "hidden" for op in ops)
        rows = [(op, scenario.average_ps(op.printed)) for op in ops if op.printed is not None]
        counted = scenario.printed.communication * scenario.step_ps
        exposed = scenario.exposed_share * scenario.step_ps
        if scenario.counts_all_reduces_only:
            communication = counted - sum(time for op, time in rows if op.category == "all-reduce")
        else:
            communication = counted - hidden - sum(time for op, time in rows if _is_collective(op))
        filler = scenario.busy_ps - communication - exposed - hidden - sum(time for _, time in rows)
        if communication <= 0 or filler <= 0:
            raise ValueError(f"{scenario.key}: the printed ops leave no time for the others")
        self._per_weight = {
            timing: left / weight
            for timing, left in (("communication", communication), ("exposed", exposed), ("filler", filler))
            if (weight := sum(op.weight_s for op in ops if op.timing == timing))
        }

    def duration_ps(self, op: StepOp) -> float:
        return HIDDEN_PS if op.timing == "hidden" else op.weight_s * self._per_weight[op.timing]


def _lay_out(ops: list[StepOp], start_ps: int, printed: _PrintedDurations, pace: _Pace) -> list[TimedOp]:
    """The ops back to back from `start_ps`, in whole picoseconds whose sum does not drift."""
    clock = start_ps
    rest = 0.0
    events: list[TimedOp] = []
    for op in ops:
        if op.printed is not None:
            duration = printed.next(op.printed)
        else:
            exact = pace.duration_ps(op) + rest
            duration = int(exact)
            rest = exact - duration
        events.append(TimedOp(op, clock, duration))
        clock += duration
    return events
