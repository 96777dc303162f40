"""One configuration against another: who has the better case, by the numbers, and which number would turn it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proposals.agents import words
from proposals.agents.priced import Priced

Case = Literal["illegal", "unpriced", "better", "bolder", "tie", "slower"]
#: Confidences nearer than this are the same.
SURE = 0.02


def case(mine: Priced, theirs: Priced) -> Case:
    """What the numbers say of theirs beside mine; `bolder`: predicted faster, but less sure to gain at all, or so far
    from the current configuration that the ranking discounts the gain."""
    if theirs.violations:
        return "illegal"
    fast, own = theirs.speedup_per_token, mine.speedup_per_token
    if fast is None or own is None:
        return "unpriced"
    surer = theirs.sure - mine.sure
    if fast > own * (1 + words.SAME):
        return "better" if surer >= -SURE and not _discounted(mine, theirs) else "bolder"
    if fast >= own * (1 - words.SAME):
        return "better" if surer > SURE else "tie"
    return "slower"


def _discounted(mine: Priced, theirs: Priced) -> bool:
    """Whether the ranking counts on less of their larger gain than of mine."""
    counted, own = theirs.utility, mine.utility
    return counted is not None and own is not None and counted < own


def stays_because(mine: Priced, theirs: Priced) -> str:
    """What a first trial has over a bolder one."""
    return "is more certain" if theirs.sure < mine.sure - SURE else "is closer to the current configuration"


def argued(name: str, theirs: Priced, own: str, mine: Priced, longer: float | None = None) -> Iterator[str]:
    """The case of one configuration against another, in sentences.  longer: its time per token over the other's."""
    argument = case(mine, theirs)
    name = name[:1].upper() + name[1:]
    if argument == "illegal":
        yield f"{name} cannot run: {words.lower_first(words.violations(theirs)[0].rstrip('.'))}."
        return
    if argument == "unpriced":
        yield f"{name} has no predicted speed-up, so it cannot be compared with {own}."
        return
    fast, best = words.gain(theirs), words.gain(mine)
    sure, base = words.confidence(theirs), words.confidence(mine)
    chips = " per token and chip" if words.fewer_chips(theirs) else ""
    odds = f"with a confidence of {sure} against {base}" if sure != base else f"at the same confidence of {sure}"
    odds += chips
    if argument == "better":
        yield f"{name} has the better numbers: predicted {fast} per token against {best} for {own}, {odds}."
    elif argument == "bolder" and mine.kind == "keep":
        yield (
            f"{name} is predicted at {fast} per token, with a confidence of {sure} that it {words.gains(theirs)}; "
            f"{own} keeps the current configuration, which risks nothing and gains nothing."
        )
    elif argument == "bolder" and theirs.sure >= mine.sure - SURE:
        yield (
            f"{name} promises more, predicted {fast} per token against {best} for {own}, {odds}, but it is ranked "
            "lower: without the model's shape, a predicted gain counts for less the further the configuration is from "
            "the current one."
        )
    elif argument == "bolder":
        yield (
            f"{name} promises more, predicted {fast} per token against {best} for {own}, but is less likely to "
            f"{'gain' if chips else 'gain at all'}: confidence {sure} against {base}{chips}."
        )
    elif argument == "tie":
        yield (
            f"{name} is a tie with {own} as far as the model can tell: predicted {fast} per token against "
            f"{best}, {odds}."
        )
    else:
        more = f", {words.ratio(longer)} the time per token" if longer and longer > 1 + words.SAME else ""
        yield f"{name} is predicted at {fast} per token against {best} for {own}{more}."
        if sure != base and theirs.sure > mine.sure:
            yield (f"Its confidence is higher, {sure} against {base}{chips}, but the gain is smaller.")
        elif theirs.sure < mine.sure - SURE:
            yield f"Its confidence is also lower: {sure} against {base}{chips}."
    yield from _points(theirs, mine)


def _points(theirs: Priced, mine: Priced) -> Iterator[str]:
    """What speaks for theirs beside speed, and what against."""
    if theirs.keeps_the_mesh and not mine.keeps_the_mesh:
        yield "In its favour: it keeps the mesh, so nothing is resharded, and reverting it is a one-line change."
    room, own = theirs.memory_headroom_bytes, mine.memory_headroom_bytes
    if room is not None and own is not None and abs(room - own) > 0.02 * abs(own):
        word = "more" if room > own else "less"
        yield f"It leaves {word} memory free: {words.size(room)} against {words.size(own)} per chip."


def turns(name: str, theirs: Priced, own: str, mine: Priced) -> str:
    """The number that would turn the order of two configurations."""
    time, best = theirs.step_time_s, mine.step_time_s
    batch = theirs.changes.get("global_batch") != mine.changes.get("global_batch")
    if theirs.violations or theirs.speedup_per_token is None:
        return ""
    if time and best and not batch:
        goal = best.estimate
        if time.estimate <= goal:
            return (
                f"{name[:1].upper() + name[1:]} is predicted ahead: {words.step(theirs)} against "
                f"{words.time(goal, 'predicted')} for {own}; it falls behind if it measures above that."
            )
        reach = "includes" if time.low80 <= goal <= time.high80 else "excludes"
        return (
            f"The order reverses if {name} measures below {words.time(goal, 'predicted')} per step, the prediction for "
            f"{own}; its own prediction is {words.step(theirs)}, whose interval {reach} that."
        )
    if theirs.speedup_per_token >= (mine.speedup_per_token or 0.0):
        return (
            f"{name[:1].upper() + name[1:]} is predicted ahead: {words.speed(theirs)} against "
            f"{words.gain(mine)} for {own}; it falls behind if it measures below that."
        )
    return f"The order reverses if {name} measures above {words.gain(mine)} per token, the prediction for {own}."
