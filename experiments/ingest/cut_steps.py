"""Steps that the recording cut off, and steps of a warm-up: they may not pass for usual ones."""

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
#: A first step of more than so many times the later ones compiles or warms up.
COLD = 2
#: Fewer ops than in any other step by more than this: ops are missing.
_FEWER = 0.98
#: Parts of a step in which the device works on it.
_WORK = ("compute", "collective", "device_to_device", "host_transfer")


def cut_off(times_s: Sequence[float], work_s: Sequence[float], ops: Sequence[int] | None = None) -> list[int]:
    """Positions of steps that the recording began or ended in, and of those of a warm-up.

    times_s: of the steps in order; work_s: what the device worked in each; ops: op events in each, where known.  A step
    is cut off if its time and its work are below those of the others by more than these vary among themselves, and if
    it lacks ops that all others have.  A step that merely waited less (others compiled, or waited for input) has the
    work of the others, and a quick one all of their ops.
    """
    count = len(times_s)
    if count < 2:
        return []
    cold = warm_up(times_s)
    places = [*range(cold)]
    for place in {cold, count - 1}:
        inner = range(cold + 1, count - 1) if count - cold > 3 else range(cold, count)
        others = [i for i in inner if i != place]
        counted = ops is not None
        short = all(_much_shorter([values[i] for i in others], values[place], counted) for values in (times_s, work_s))
        if short and (ops is None or ops[place] < _FEWER * min(ops[i] for i in others)):
            places.append(place)
    return sorted(places) if len(places) < count else []


def warm_up(times_s: Sequence[float]) -> int:
    """Return how many steps at the head take more than COLD times the median of the later half; 0 of fewer than 3."""
    most = COLD * median(times_s[len(times_s) // 2 :]) if len(times_s) > 2 else float("inf")
    return next((place for place, time_s in enumerate(times_s) if time_s <= most), 0)


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
    notes = [cut_note(steps[i].number, steps[i].time_s, first=2 * i < len(steps)) for i in places]
    return [step for i, step in enumerate(steps) if i not in places], notes


def cut_note(number: int, time_s: float, *, first: bool) -> Note:
    edge = "The recording begins or warms up in" if first else "The recording ends in"
    return Note(
        "info",
        f"{edge} step {number}: its {plain(time_s, 's')} are excluded from the step time and all per-step values.",
    )
