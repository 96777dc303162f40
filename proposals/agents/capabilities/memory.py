"""Memory per chip: peak and headroom, what fills it, whether another configuration fits, what would make room."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from agent.tools import NoArguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import (
    arguments,
    as_arguments,
    get,
    memory_table,
    name_of,
    priced_table,
    unknown_facts,
)
from proposals.agents.capabilities.compiled import memory_column
from proposals.agents.capabilities.configured import Configured, configurations, predict_arguments, subject
from proposals.agents.capabilities.memory_use import filling, stated_peak
from proposals.agents.conversation import Said
from proposals.agents.priced import ChipCounts, Current, Priced
from proposals.agents.tools import MachineTools, ModelTools, RunTools, WhatIfTools


@capability(
    "Peak memory and headroom",
    "How much memory is used per chip and how much is free?",
    "What is the peak HBM usage?",
    "How close are we to running out of memory?",
    "How much headroom do the proposals leave?",
)
def memory(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Measured peak per chip, and memory of the current configuration and of the proposals, computed."""
    stated = stated_peak(ctx)
    if stated is None:
        yield from _measured(ctx)
    else:
        yield from filling(ctx)
    data = yield from get(ctx, ModelTools.proposals)
    ran, unknown = data.current, data.not_known
    known = [row for row in data.proposals if row.hbm_per_chip_bytes]
    if not known:
        yield from ctx.say(f"What the proposals need cannot be computed: {facts.not_known(unknown)}.")
        yield from unknown_facts(ctx, unknown)
        return
    lines = [[f"{name_of(row)}, {words.configuration(row)}", words.memory(row), words.headroom(row)] for row in known]
    if ran.hbm_per_chip_bytes:
        lines.insert(0, ["current", words.memory(ran), words.headroom(ran)])
    shown: list[Current | Priced] = [ran, *known] if ran.hbm_per_chip_bytes else [*known]
    compiled = memory_column(shown)
    for line, text in zip(lines, compiled, strict=False):
        line.append(text)
    yield from ctx.table(["Per chip, predicted", "Memory", "Headroom", *(["Compiled"] if compiled else [])], lines)


def _measured(ctx: AnswerContext) -> Answer:
    data = yield from get(ctx, RunTools.kpis)
    held = data.memory
    if held.get("peak_bytes"):
        of = f" of {words.size(held['capacity_bytes'])}" if held.get("capacity_bytes") else ""
        yield from ctx.say(f"Measured peak: **{words.size(held['peak_bytes'])}**{of} per chip.")
    else:
        why = "the profile has no memory events" if not data.profile else "there is no profile, and none was given"
        yield from ctx.say(f"The peak memory of this run was not measured: {why}.")


@capability(
    "What fills the memory",
    "What sets the peak memory?",
    "How much memory do weights, optimizer state, gradients and activations take?",
    "Which part of the memory is largest?",
    "Do the activations or the parameters dominate HBM?",
)
def memory_parts(ctx: AnswerContext, given: Configured) -> Answer:
    """Memory per chip by parts (weights, optimizer state, gradients, activations) of a configuration, computed."""
    row = yield from _legality(ctx, given)
    if not given.named and stated_peak(ctx) is None:
        yield from _measured(ctx)
    if not row.hbm_per_chip_bytes:
        yield from ctx.say(f"Its parts cannot be computed: {facts.not_known(row.not_known)}.")
        yield from unknown_facts(ctx, row.not_known)
        return
    yield from ctx.say(f"{subject(given, row)}:")
    yield from memory_table(ctx, row)
    yield from filling(ctx)


def _legality(ctx: AnswerContext, given: Configured) -> Generator[Said, None, Priced]:
    rows = yield from configurations(ctx, given, ModelTools.legality)
    return rows[0]


@capability(
    "Does it fit in memory",
    "Does this configuration fit in memory?",
    "Would it still fit without remat?",
    "Will this batch size run out of memory?",
    "Does it fit with another optimizer or precision?",
    "Is there enough HBM for a longer sequence?",
)
def fits(ctx: AnswerContext, given: Configured) -> Answer:
    """Whether a configuration fits per chip: another mesh, batch, sequence length, remat, precision, optimizer."""
    rows = yield from configurations(ctx, given, ModelTools.legality)
    if any(row.fits is None or not row.hbm_per_chip_bytes for row in rows):
        row = next(row for row in rows if not row.hbm_per_chip_bytes or row.fits is None)
        yield from ctx.say(f"{subject(given, row)}: whether it fits cannot be computed.", *words.violations(row)[:1])
        yield from unknown_facts(ctx, row.not_known)
        return
    for row in rows:
        yield from ctx.say(f"{subject(given, row)} {_verdict(row)}: {words.memory(row)} per chip, predicted.")
        others = [item for item in row.violations if item.rule != "memory"]
        if others:
            yield from ctx.say(f"Memory aside, it is not legal: {others[0].reason}")
        if given.named and row.fits and not others and not row.elsewhere:
            yield from _speed(ctx, row)
    if len(rows) == 1:
        yield from memory_table(ctx, rows[0])
    if not given.named:
        yield from _measured(ctx)


def _speed(ctx: AnswerContext, row: Priced) -> Answer:
    """What a configuration that fits gains or loses."""
    predicted = yield from ctx.look(ModelTools.predict, **as_arguments(row))
    if predicted.data and predicted.data.speedup_per_token:
        yield from ctx.more(f"Its step is predicted at {words.step(predicted.data)}, {words.speed(predicted.data)}.")


def _verdict(row: Priced) -> str:
    room = row.memory_headroom_bytes or 0.0
    if row.fits:
        return f"**fits**, with {words.size(room)} of headroom"
    return f"**does not fit**, {words.size(-room)} over capacity"


@capability(
    "Largest batch that fits",
    "What is the biggest batch size that fits in memory?",
    "How far can I increase the batch before it runs out of memory?",
    "What is the maximum micro batch per device?",
)
def largest_batch(ctx: AnswerContext, given: Configured) -> Answer:
    """The largest global batch that fits, found by doubling and bisection, with memory and time per token."""
    own = given.but("batch")
    of = (yield from predict_arguments(ctx, own))[0]
    now = of["changes"].get("global_batch") or ctx.bench.config.training.global_batch
    if now is None:
        yield from unknown_facts(ctx, ["training.global_batch"])
        return
    data = yield from get(ctx, WhatIfTools.vary, key="global_batch", of=of, values=_batches(now))
    if own.named:
        row = yield from get(ctx, ModelTools.legality, **of)
        yield from ctx.say(f"With {words.located(row)}:")
    rows = [row for row in data.rows if row.hbm_per_chip_bytes]
    if not rows:
        yield from ctx.say("Memory cannot be computed while facts are missing.")
        run = yield from get(ctx, RunTools.run)
        yield from unknown_facts(ctx, run.not_known)
        return
    each = yield from get(ctx, MachineTools.divisors)
    if between := _batches_between(rows, each.batch_must_divide_by):
        finer = yield from get(ctx, WhatIfTools.vary, key="global_batch", of=of, values=between)
        near = [row for row in rows if int(row.value) < 2 * max(between)]
        known = [row for row in finer.rows if row.hbm_per_chip_bytes]
        rows = sorted([*near, *known], key=lambda row: int(row.value))
    fitting = [row for row in rows if _fits(row)]
    if fitting:
        largest = max(fitting, key=lambda row: int(row.value))
        more = int(largest.value) < max(int(row.value) for row in rows)
        yield from ctx.say(
            f"Of the batches tried, the largest that fits is **{int(largest.value):,}**, "
            f"{words.memory(largest)} per chip" + ("." if more else "; larger ones were not tried.")
        )
    else:
        yield from ctx.say("No batch tried fits.")
    yield from priced_table(ctx, rows, data.current, "Global batch", [f"{int(row.value):,}" for row in rows])


def _batches(now: int) -> tuple[int, ...]:
    return tuple(now * 2**n for n in range(8)) if now > 1 else tuple(2**n for n in range(8))


def _batches_between(rows: Sequence[Priced], each: int) -> tuple[int, ...]:
    """Batches between the largest doubling that fits and the next, in multiples of what the batch must divide by."""
    fitting = [int(row.value) for row in rows if _fits(row)]
    over = [int(row.value) for row in rows if not _fits(row)]
    if not fitting or not over or max(fitting) > min(over):
        return ()
    low, high = max(fitting), min(over)
    step = max(each, (high - low) // 8 // each * each)
    return tuple(range(low + step, high, step))[:12]


def _fits(row: Priced) -> bool:
    return bool((row.memory_headroom_bytes or -1) >= 0 and row.may_run)


@capability(
    "Ways to free memory",
    "Why does this run out of memory?",
    "I get an OOM, what can I do?",
    "How can I reduce the memory footprint?",
    "What frees the most memory per chip?",
)
def make_room(ctx: AnswerContext, given: Configured) -> Answer:
    """Memory of a configuration by part, and what remat, sharding, micro-batches and optimizer would free."""
    row = yield from _legality(ctx, given)
    if not row.hbm_per_chip_bytes:
        yield from _measured(ctx)
        yield from ctx.say(f"What it needs cannot be computed: {facts.not_known(row.not_known)}.")
        yield from unknown_facts(ctx, row.not_known)
        return
    yield from ctx.say(f"{subject(given, row)} needs {words.memory(row)} per chip, predicted:")
    yield from memory_table(ctx, row)
    config = ctx.bench.config.training
    tries: list[dict[str, Any]] = [
        {"remat": "full"},
        {"remat": "offload"},
        {"weight_sharding": "fsdp"},
        {"optimizer": "adafactor"},
    ]
    if config.micro_batch:
        tries += [{"micro_batch": config.micro_batch // 2}] if config.micro_batch % 2 == 0 else []
    else:
        tries += [{"grad_accum": config.grad_accum * 2}]
    if config.global_batch and config.global_batch % 2 == 0:
        tries.append({"global_batch": config.global_batch // 2})
    lines = []
    for change in tries:
        if all(getattr(config, key) == value for key, value in change.items()):
            continue
        asked = arguments(row.mesh, {**row.changes, **change})
        judged = (yield from ctx.look(ModelTools.legality, **asked)).data
        if judged and judged.hbm_per_chip_bytes:
            lines.append([words.changes(change), words.memory(judged), words.headroom(judged)])
    if lines:
        yield from ctx.say("With one setting changed:")
        yield from ctx.table(["Change", "Memory per chip", "Headroom"], lines)


@capability(
    "Smallest number of chips that fits",
    "What is the smallest number of chips this model fits on?",
    "How few devices could I use?",
    "What is the minimum slice for this training run?",
)
def smallest_fit(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The fewest chips (powers of two) on which the run fits in memory, each count on its best legal mesh."""
    data = yield from get(ctx, WhatIfTools.chip_counts)
    least = data.smallest_that_fits_chips
    if least is None:
        raise ToolError("It fits on none of the chip counts tried.")
    yield from ctx.say(f"By the memory model, it fits on **{least:,} chips** or more.")
    yield from counts_table(ctx, data)


def counts_table(ctx: AnswerContext, data: ChipCounts) -> Answer:
    """Numbers of chips with their best meshes."""
    lines = [
        [
            f"{row.chips:,}",
            words.mesh(row) if row.mesh_text else row.reason or "–",
            words.estimate(row) if row.fits else "–",
            words.ratio(row.speedup_per_token_and_chip) if row.speedup_per_token_and_chip and row.fits else "–",
            words.memory(row) if row.hbm_per_chip_bytes else "–",
            "yes" if row.fits else "no",
        ]
        for row in data.rows[-8:]
    ]
    yield from ctx.table(
        ["Chips", "Best mesh", "Step, predicted", "Per token and chip", "Memory per chip", "Fits"], lines
    )
