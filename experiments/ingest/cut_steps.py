"""Steps at the edge of the recording that it cut off, and steps that stand out: neither may pass for a usual step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.step_profile import Note, Step
from formatting import plain

#: A step may be this much shorter than the others and still be whole: where its ops were counted, and where only its
#: times are known.
_SHORTER, _SHORTER_UNCOUNTED = 0.02, 0.2
#: With one other step to compare with, only less than half of it is taken for cut off.
_SHORTER_THAN_ONE = 0.5
_DEVIATIONS = 5.0
#: A median absolute deviation in standard deviations.
_MAD = 1.4826
#: Fewer ops than in any other step by more than this: ops are missing.
_FEWER = 0.98
_STANDS_OUT = 1.5
#: Parts of a step in which the device works on it.
_WORK = ("compute", "collective", "device_to_device", "host_transfer")


def cut_off(times_s: Sequence[float], work_s: Sequence[float], ops: Sequence[int] | None = None) -> list[int]:
    """Positions (the first, the last) of steps that the recording began or ended in.

    times_s: of the steps in order; work_s: what the device worked in each; ops: op events in each, where known.  A step
    is cut off if its time and its work are below those of the others by more than these vary among themselves, and if
    it lacks ops that all others have.  A step that merely waited less (others compiled, or waited for input) has the
    work of the others, and a quick one all of their ops.
    """
    count = len(times_s)
    if count < 2:
        return []
    places: list[int] = []
    for place in (0, count - 1):
        inner = range(1, count - 1) if count > 3 else range(count)
        others = [i for i in inner if i != place]
        counted = ops is not None
        short = all(_much_shorter([values[i] for i in others], values[place], counted) for values in (times_s, work_s))
        if short and (ops is None or ops[place] < _FEWER * min(ops[i] for i in others)):
            places.append(place)
    return places if len(places) < count else []


def _much_shorter(others: Sequence[float], value: float, counted: bool) -> bool:
    usual = median(others)
    if len(others) == 1:
        return value < (1 - _SHORTER_THAN_ONE) * usual
    spread = _MAD * median(abs(other - usual) for other in others)
    return value < usual - max((_SHORTER if counted else _SHORTER_UNCOUNTED) * usual, _DEVIATIONS * spread)


def whole_steps(steps: Sequence[Step]) -> tuple[list[Step], list[Note]]:
    """(the steps that were recorded as a whole, notes on the others), from their times and parts alone."""
    work = [sum(step.breakdown_s.get(part, 0.0) for part in _WORK) for step in steps]
    places = cut_off([step.time_s for step in steps], work if any(work) else [step.time_s for step in steps])
    notes = [cut_note(steps[i].number, steps[i].time_s, first=i == 0) for i in places]
    return [step for i, step in enumerate(steps) if i not in places], notes


def cut_note(number: int, time_s: float, *, first: bool) -> Note:
    edge = "The recording begins in" if first else "The recording ends in"
    return Note(
        "info",
        f"{edge} step {number}: its {plain(time_s, 's')} are excluded from the step time and all per-step values.",
    )


def notes_on_long_steps(steps: Sequence[Step]) -> list[Note]:
    """What makes steps much longer than the others so; they remain in the mean."""
    if len(steps) < 3:
        return []
    usual = median(step.time_s for step in steps)
    long = [step for step in steps if step.time_s > _STANDS_OUT * usual]
    if not long or len(long) > len(steps) // 2:
        return []
    worst = max(long, key=lambda step: step.time_s)
    rest = [step for step in steps if step not in long]
    mean_s = sum(step.time_s for step in rest) / len(rest)
    which = f"Step {worst.number} takes" if len(long) == 1 else f"{len(long)} steps take up to"
    times = plain(worst.time_s / usual, "speedup")
    return [
        Note(
            "warning",
            f"{which} {plain(worst.time_s, 's')}, {times} the median of {plain(usual, 's')}"
            f"{_grown(worst, rest)}. The mean without {'it' if len(long) == 1 else 'them'} is {plain(mean_s, 's')}.",
        )
    ]


def _grown(step: Step, others: Sequence[Step]) -> str:
    """The part that accounts for most of what the step takes longer."""
    more = {
        part: value - median(other.breakdown_s.get(part, 0.0) for other in others)
        for part, value in step.breakdown_s.items()
    }
    part = max(more, key=lambda name: more[name], default="")
    if not part or more[part] <= 0:
        return ""
    words = {
        "compile": "in compilation", "idle": "idle", "input": "waiting for input",
        "host": "on the host", "launch": "in kernel launches", "collective": "in collectives", "compute": "in compute",
    }  # fmt: skip
    return f"; {plain(more[part], 's')} of it {words.get(part, 'in ' + part.replace('_', ' '))}"
