"""The run on other chips: another kind, another number, as many as a step time takes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.tools import Arguments
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import ChipName, get
from proposals.agents.capabilities.configured import Configured
from proposals.agents.capabilities.cost import Duration, Tokens, in_days
from proposals.agents.capabilities.memory import counts_table
from proposals.agents.capabilities.pricing import price
from proposals.agents.tools import MachineTools, RunTools, WhatIfTools
from proposals.agents.tools.what_if import MOST_CHIPS


@capability(
    "Another precision",
    "Does fp8 help?",
    "What would int8 or lower precision matmuls bring?",
    "How much faster in fp8 than in bf16?",
    "Should I quantise the training?",
)
def change_precision(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted effect of another precision of the matmuls, and whether the chip supports it natively."""
    chip = yield from get(ctx, MachineTools.hardware)
    native = list(chip.peaks_flops_per_s)
    now = ctx.bench.config.training.precision
    if not given.precision and not given.variants:
        tried = tuple(f"precision={p}" for p in native if p != now)
        if not tried:
            yield from ctx.say(
                f"{chip.title} supports matmuls in {now} alone, so a lower precision saves no compute time."
            )
            return
        given = Configured(**{**given.model_dump(exclude_defaults=True), "variants": tried[:4]})
    yield from price(ctx, given)
    verdict_ = yield from get(ctx, RunTools.bottleneck)
    yield from ctx.say(
        f"A lower precision shortens only compute time; the bottleneck of this step is {words.bottleneck(verdict_)}."
    )


@capability(
    "On another chip",
    "Can I run this on another chip?",
    "How fast would this be on the chip?",
    "What would we gain by moving to newer accelerators?",
    "Compare this run with the same on GPUs.",
)
def change_chip(ctx: AnswerContext, given: Configured) -> Answer:
    """This run on another chip type (same count by default), on the best legal mesh."""
    ran = f"chip={ctx.bench.config.hardware.chip}"
    if ran in given.variants:  # `v5p in place of v6e`
        others = tuple(each for each in given.variants if each != ran)
        given = Configured(**{**given.model_dump(exclude_defaults=True), "variants": others})
    if not given.chip and not any(each.startswith("chip=") for each in given.variants):
        one = registry()["change_chip"]
        raise Missing(
            "Name a chip, such as v5p or h100.", tuple(command(one, {"chip": name}) for name in ("v5p", "v6e", "h100"))
        )
    yield from price(ctx, given)


@capability(
    "On another number of chips",
    "What if I had twice as many chips?",
    "How does this scale to more devices?",
    "What is the scaling efficiency if I halve the number of chips?",
    "How would it run on fewer GPUs?",
)
def change_chips(ctx: AnswerContext, given: Configured) -> Answer:
    """This run on more or fewer chips of the same type, on the best legal mesh, with the efficiency per chip."""
    if given.named:
        yield from price(ctx, given)
        return
    now = ctx.bench.config.hardware.chips
    counts = tuple(f"chips={count}" for count in (now // 2, now * 2, now * 4) if 1 <= count <= MOST_CHIPS)
    yield from price(ctx, Configured(variants=counts))


class ForTime(Arguments):
    step_time_s: Annotated[float | None, Field(gt=0, le=1e6, description="Target step time in seconds.")] = None
    days: Annotated[float | None, Field(gt=0, le=1e5, description="Or a deadline in days.")] = None
    tokens: Tokens = None
    chip: ChipName = ""


@capability(
    "Chips for a step time",
    "How many chips do I need for a step time of so many seconds?",
    "What slice would get us under that many seconds per step?",
    "How many GPUs to train at this speed?",
)
def chips_for_time(ctx: AnswerContext, given: ForTime) -> Answer:
    """Number of chips (powers of two) to reach a step time or a deadline, each on its best legal mesh."""
    if not given.step_time_s:
        if (yield from in_days(ctx, Duration(tokens=given.tokens, days=given.days))):
            return
        step = ctx.bench.diagnosis.kpis.get("step_time_s")
        one = registry()["chips_for_time"]
        choices = tuple(command(one, {"step_time_s": f"{step / n:.3g}"}) for n in (2, 4)) if step else ()
        raise Missing("State the step time, in seconds.", choices)
    data = yield from get(ctx, WhatIfTools.chip_counts, step_time_s=given.step_time_s, chip=given.chip)
    reached, wanted = data.reached_with_chips, words.time(data.wanted_step_time_s or given.step_time_s)
    if reached:
        yield from ctx.say(f"**{reached:,} chips** are predicted to reach {wanted} per step.")
    else:
        yield from ctx.say(f"No number of chips tried is predicted to reach {wanted} per step at this batch.")
    yield from counts_table(ctx, data)
