"""The run on other chips: another kind, another number, as many as a step time takes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments
from proposals.agents import words
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import (
    ChipName,
    Chips,
    Precision,
    get,
    how,
)
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.capabilities.memory import counts_table


class WithPrecision(Arguments):
    precision: Precision = ""


@capability(
    "Another precision",
    "Does fp8 help?",
    "What would int8 or lower precision matmuls bring?",
    "How much faster in fp8 than in bf16?",
    "Should I quantise the training?",
)
def change_precision(desk: Desk, given: WithPrecision) -> Answer:
    """Predicted effect of another precision of the matmuls, and whether the chip has units for it."""
    chip = yield from get(desk, "hardware")
    native = list(chip["peaks_flops_per_s"])
    if given.precision and given.precision not in native:
        yield from desk.say(
            f"{chip['title']} has no {given.precision} units: matmuls run in another precision, so no arithmetic "
            f"is saved "
            f"(native: {words.listed(native)})."
        )
    now = desk.bench.config.training.precision
    tried = [given.precision] if given.precision else [p for p in native if p != now]
    if not tried:
        yield from desk.say(f"{chip['title']} has units for {now} alone, so no lower precision saves arithmetic.")
        return
    lines = []
    for precision in tried[:4]:
        found = yield from get(desk, "retarget", changes={"precision": precision})
        row = found["there"]
        speed = words.ratio(row["speedup_per_token"]) if row.get("speedup_per_token") else "–"
        lines.append([precision, words.estimate(row), speed, words.span(row), words.memory(row)])
    yield from desk.table(["Precision", "Step, predicted", "Per token", "80 % interval", "Memory per chip"], lines)
    verdict_ = yield from get(desk, "bottleneck")
    yield from desk.say(
        f"Only time that arithmetic takes gets shorter; the bottleneck of this step is {verdict_['primary']}. "
        f"Numerical "
        "quality is not modelled."
    )


class OnChip(Arguments):
    chip: ChipName = ""
    chips: Chips = None


@capability(
    "On another chip",
    "Can I run this on another chip?",
    "How fast would this be on the chip?",
    "What would we gain by moving to newer accelerators?",
    "Compare this run with the same on GPUs.",
)
def change_chip(desk: Desk, given: OnChip) -> Answer:
    """The run on another kind of chip, as many unless said otherwise, on its best legal mesh there."""
    if not given.chip:
        one = registry()["change_chip"]
        raise Missing("Say which chip.", tuple(command(one, {"chip": name}) for name in ("v5p", "v6e", "h100")))
    yield from _there(desk, {"chip": given.chip, "chips": given.chips})


@capability(
    "On another number of chips",
    "What if I had twice as many chips?",
    "How does this scale to more devices?",
    "What is the scaling efficiency if I halve the number of chips?",
    "How would it run on fewer GPUs?",
)
def change_chips(desk: Desk, given: OnChip) -> Answer:
    """The run on more or fewer chips of the same kind, on its best legal mesh there, with the efficiency per chip."""
    if given.chips or given.chip:
        yield from _there(desk, {"chip": given.chip, "chips": given.chips})
        return
    now = desk.bench.config.hardware.chips
    for count in (now // 2, now * 2, now * 4):
        if count >= 1:
            yield from _there(desk, {"chips": count}, brief=True)


def _there(desk: Desk, wanted: dict[str, Any], brief: bool = False) -> Answer:
    found = yield from get(desk, "retarget", **{key: value for key, value in wanted.items() if value})
    row, now = found["there"], found["current"]
    slices = f", {row['slices']} slices" if row["slices"] > 1 else ""
    where = f"{row['chips']:,} {row['chip']} chips ({row['topology']}{slices})"
    if row.get("violations"):
        yield from desk.say(f"On {where}, {words.mesh(row)}: **does not run**: {row['violations'][0]['reason']}")
        return
    speed = (
        f", **{words.ratio(row['speedup_per_token'])} per token** (80 % interval {words.span(row)})"
        if row.get("speedup_per_token")
        else ""
    )
    each = (
        f"; per token and chip {words.ratio(row['speedup_per_token_and_chip'])}"
        if row.get("speedup_per_token_and_chip")
        else ""
    )
    measured = f" against {words.estimate(now)} {how(desk)} now" if now.get("step_time_s") else ""
    yield from desk.say(
        f"On {where}, mesh {words.mesh(row)}: a step of {words.estimate(row)} predicted{measured}{speed}{each}; "
        f"{words.memory(row)} per chip."
    )
    if not brief:
        yield from desk.say(str(found["note"]))


class ForTime(Arguments):
    step_time_s: Annotated[float | None, Field(gt=0, le=1e6, description="Wanted step time in seconds.")] = None
    chip: ChipName = ""


@capability(
    "Chips for a step time",
    "How many chips do I need for a step time of so many seconds?",
    "What slice would get us under that many seconds per step?",
    "How many GPUs to train at this speed?",
)
def chips_for_time(desk: Desk, given: ForTime) -> Answer:
    """How many chips (in powers of two) it takes to reach a step time, each count on its best legal mesh."""
    if not given.step_time_s:
        step = desk.bench.diagnosis.kpis.get("step_time_s")
        one = registry()["chips_for_time"]
        choices = tuple(command(one, {"step_time_s": f"{step / n:.3g}"}) for n in (2, 4)) if step else ()
        raise Missing("Say which step time, in seconds.", choices)
    data = yield from get(desk, "chip_counts", step_time_s=given.step_time_s, chip=given.chip)
    reached = data.get("reached_with_chips")
    wanted = words.time(data["wanted_step_time_s"])
    if reached:
        yield from desk.say(f"**{reached:,} chips** are predicted to reach {wanted} per step.")
    else:
        yield from desk.say(f"No number of chips tried is predicted to reach {wanted} per step at this batch.")
    yield from counts_table(desk, data)
