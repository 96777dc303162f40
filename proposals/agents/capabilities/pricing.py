"""What another configuration would do: a mesh, a setting, a chip, a number of chips, a kind of parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.tools import ToolError
from formatting import listed
from perfmodel.config import mesh_text
from perfmodel.workload import LOW_PRECISIONS
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import get, how, memory_table, offers, priced_table, unknown_facts
from proposals.agents.capabilities.configured import (
    SETTINGS,
    Configured,
    away,
    configurations,
    predict_arguments,
    within,
)
from proposals.agents.priced import Priced, Varied
from proposals.agents.tools import MachineTools, ModelTools, WhatIfTools


def price(ctx: AnswerContext, given: Configured) -> Answer:
    """What a configuration is predicted to do, against the current one."""
    rows = yield from configurations(ctx, given)
    if len(rows) == 1:
        yield from priced(ctx, rows[0])
    else:
        if not given.variants and not away(ctx, given):
            yield from ctx.say(
                "The sizes named do not say which axis takes the remaining chips; each option is priced:"
            )
        elif not given.variants and not given.mesh:
            yield from ctx.say("On the current mesh, as far as it fits these chips, and on the best legal one:")
        yield from priced_table(ctx, rows, rows[0].current)
        if not any(row.hbm_per_chip_bytes for row in rows):
            yield from ctx.bullets(list(_memory(rows[0])))
        yield from ctx.bullets([f"{words.located(row)}: {row.violations[0].reason}" for row in rows if row.violations])
    if given.mesh and not away(ctx, given) and all(row.violations for row in rows):
        yield from _legal_instead(ctx, given)
    yield from ctx.say(next((row.note for row in rows if row.note), ""))
    yield from offers([row for row in rows if not row.elsewhere])


def _legal_instead(ctx: AnswerContext, given: Configured) -> Answer:
    """The best legal configuration with the sizes that were named, where what they were taken for is not legal."""
    found = yield from ctx.look(ModelTools.search, top=1, **within(ctx, given.mesh))
    for row in found.data.candidates if found.data else ():
        if row.speedup_per_token and not row.is_current:
            yield from ctx.say(
                f"The best legal configuration with {given.mesh}: {words.configuration(row)}, predicted at "
                f"{words.speed(row)}."
            )


def priced(ctx: AnswerContext, row: Priced) -> Answer:
    """One configuration as `predict` has it."""
    broken, ran = words.violations(row), row.current
    name, each = words.located(row), row.speedup_per_token_and_chip
    if not row.changes and not row.elsewhere and row.mesh_text == ran.mesh_text:
        step = words.current_step(ran, how(ctx))
        yield from ctx.say(f"{name} is the current configuration: {step} per step, {how(ctx)}.")
        yield from ctx.bullets(list(_memory(row)))
        return
    if broken:
        yield from ctx.say(f"{name} is **not legal**: {broken[0]}", *broken[1:3])
        if any(item.rule == "memory" for item in row.violations):
            yield from memory_table(ctx, row)
        return
    stands = f", which is proposal {row.proposal_number}," if row.proposal_number else ""
    if row.speedup_per_token is None:
        yield from ctx.say(
            f"{name}{stands} is legal as far as can be checked, but no speed-up can be predicted: "
            f"{facts.not_known(row.not_known)}."
        )
        yield from unknown_facts(ctx, row.not_known)
        return
    sure = ""
    if row.confidence_share is not None:
        sure = f", with {words.confidence(row)} confidence that it {words.gains(row)}"
    yield from ctx.say(
        f"{name}{stands} is predicted at **{words.gain(row)} per token**{words.within(row)}{sure}"
        f"{f'; per token and chip {words.ratio(each)}' if each else ''}.{words.inconclusive(row)}"
    )
    if ran.step_time_s:
        now = words.current_step(ran, how(ctx))
        yield from ctx.say(f"Step time: {words.step(row)} predicted, {now} {how(ctx)} now.")
        if {"global_batch", "seq_len"} & set(row.changes):
            yield from ctx.more("The tokens per step differ: compare the time per token.")
    yield from ctx.bullets(list(_effects(row)))
    yield from precision_note(ctx, row)


def precision_note(ctx: AnswerContext, row: Priced) -> Answer:
    """What a predicted time does not say of another precision: whether the chip has units for it, and whether training
    converges."""
    precision = row.changes.get("precision")
    if not precision or row.elsewhere:
        return
    chip = yield from get(ctx, MachineTools.hardware)
    native = list(chip.peaks_flops_per_s)
    if precision not in native:
        yield from ctx.say(
            f"**{chip.title} has no native {precision} matmul support**: matmuls run in another precision, so no "
            f"compute time is saved (native: {listed(native)})."
        )
    elif precision in LOW_PRECISIONS:
        yield from ctx.say(f"Whether training converges in {precision} is not modelled.")


def _effects(row: Priced) -> Iterator[str]:
    """What changes most: work, bubble, communication, memory, what lowers the confidence."""
    yield from _parts(row)
    for item in sorted(row.communication, key=lambda item: -abs(item.change))[:2]:
        if abs(item.change) > 1e-9:
            axes = f" on {' and '.join(item.axes)}" if item.axes else ""
            before, after = words.traffic(item)
            yield f"exposed communication of {item.moves}{axes}: {before} now, {after} predicted"
    yield from _memory(row)
    yield from (f"lowers confidence: {words.lower_first(text)}" for text in row.lowers_confidence[:2])


def _memory(row: Priced) -> Iterator[str]:
    if row.hbm_per_chip_bytes:
        ran = row.current.hbm_per_chip_bytes
        was = (
            f"; current configuration {words.size(ran.total)}"
            if ran and ran.total != row.hbm_per_chip_bytes.total
            else ""
        )
        yield f"memory per chip, predicted: {words.memory(row)}{was}"
    elif row.not_known:
        yield f"memory per chip: not predicted, since {facts.not_known(row.not_known)}"


def _parts(row: Priced) -> Iterator[str]:
    """Work and waiting now and predicted, where a part changes by 1 % of the step; the bubble of a pipeline always."""
    before, after = row.current.breakdown_s, row.breakdown_s
    staged = any("pipeline" in key for key in (*before, *after))
    for key in ("compute", "hbm", "idle"):
        old, new = before.get(key, 0.0), after.get(key, 0.0)
        if abs(new - old) >= 0.01 * sum(before.values()) > 0 or (key == "idle" and staged and new > 0):
            name = "idle, the pipeline bubble" if key == "idle" and staged else words.part_name(key)
            # A part that the breakdown of now does not have may be none or not measured: nothing is said of it.
            was = f"{words.time(old)} now, " if key in before else ""
            yield f"{name}: {was}{words.time(new, 'predicted')} predicted"


@capability(
    "Prediction for a configuration",
    "What would happen with this mesh?",
    "Price this mesh for me.",
    "How fast would it be with this sharding?",
    "What if I used this mesh with this batch?",
    "What would HSDP with this mesh do?",
    "Predict the step time of this layout.",
)
def price_mesh(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time, memory, legality and confidence of any mesh with any training settings."""
    if not given.named:
        now = ctx.bench.config.mesh.text().replace(" · ", ", ")
        raise Missing(
            "Name a mesh, such as the current one with other sizes, or a proposal.",
            (command(registry()["price_mesh"], {"proposal": 1}), command(registry()["price_mesh"], {"mesh": now})),
        )
    yield from price(ctx, given)


def one_setting(ctx: AnswerContext, given: Configured, field: str, head: str) -> Answer:
    """The values that are given priced, or the usual ones side by side, everything else as the form has it."""
    if getattr(given, field) or away(ctx, given) or any(text.startswith(f"{field}=") for text in given.variants):
        yield from price(ctx, given)
        return
    yield from varied(ctx, given, head, key=SETTINGS[field])


def varied(ctx: AnswerContext, given: Configured, head: str, **asked: str) -> Answer:
    of: dict[str, Any] = {}
    if given.named:
        of = (yield from predict_arguments(ctx, given))[0]
    data = yield from get(ctx, WhatIfTools.vary, **asked, **({"of": of} if of else {}))
    if given.named:
        base = Priced(mesh_text=mesh_text({"ici": of["ici"], "dcn": of.get("dcn", {})}), changes=of["changes"])
        yield from ctx.say(f"Everything else as in {words.configuration(base)}:")
    yield from side_by_side(ctx, data, head)


def side_by_side(ctx: AnswerContext, data: Varied, head: str) -> Answer:
    """One key or axis over its values, as `vary` has it."""
    rows = [row for row in data.rows if not row.reason]
    if not rows:
        raise ToolError(data.rows[0].reason if data.rows else "There is no value to try.")
    names = [row.value + (" (current)" if row.now else "") for row in rows]
    if not any(row.speedup_per_token for row in rows):
        yield from ctx.say("No gain can be predicted while facts about the run are missing; only legality is checked.")
    yield from priced_table(ctx, rows, data.current, head, names)
    best = max((r for r in rows if r.may_run and r.speedup_per_token), key=lambda r: r.gain, default=None)
    if best is not None and best.now:
        yield from ctx.say("The current value is predicted fastest.")
    elif best is not None:
        yield from ctx.say(f"Predicted fastest: **{best.value}**, {words.speed(best)}.{words.inconclusive(best)}")
    illegal = [row for row in rows if row.violations]
    yield from ctx.bullets([f"{row.value}: {words.violations(row)[0]}" for row in illegal[:4]])
    lacking: tuple[str, ...] = next((row.not_known for row in rows if row.not_known), ())
    if lacking and not any(row.hbm_per_chip_bytes for row in rows):
        yield from ctx.say("Whether they fit in memory cannot be computed yet, so *legal* leaves memory out.")
    yield from unknown_facts(ctx, lacking)
    yield from offers(rows, 1)


@capability(
    "Another batch size",
    "What if the global batch were larger?",
    "How does the batch size change throughput?",
    "Should I double the batch?",
    "What happens with more sequences per chip?",
)
def change_batch(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time per token and memory with another global batch; by default, powers of two around the current
    one."""
    config = ctx.bench.config.training
    if given.batch and config.global_batch is None:
        yield from ctx.say(
            "The current global batch is unknown, so no gain can be predicted; only legality is checked."
        )
        rows = yield from predict_arguments(ctx, Configured(**given.model_dump()))
        row = yield from get(ctx, ModelTools.legality, **rows[0])
        broken = words.violations(row)
        yield from ctx.say(f"It is **not legal**: {broken[0]}" if broken else "It breaks no rule that can be checked.")
        yield from unknown_facts(ctx, ["training.global_batch"])
        return
    yield from one_setting(ctx, given, "batch", "Global batch")


@capability(
    "Another sequence length",
    "What if the sequence length were longer?",
    "How does step time scale with context length?",
    "Can I train with a longer context?",
)
def change_seq_len(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted time per token and memory with another sequence length; by default, powers of two around it."""
    if ctx.bench.config.training.seq_len is None and given.seq_len:
        raise Missing(
            "The current sequence length is unknown, so another one cannot be priced. If this is the current one, "
            "state it.",
            (f"The sequence length is {given.seq_len}",),
        )
    if ctx.bench.config.training.seq_len is None and given.named:
        yield from price(ctx, given)
        return
    if ctx.bench.config.training.seq_len is None and not given.seq_len:
        yield from unknown_facts(ctx, ["training.seq_len"])
        return
    yield from one_setting(ctx, given, "seq_len", "Sequence length")


@capability(
    "Another rematerialisation policy",
    "What if I turn off remat?",
    "Which activation checkpointing policy is best here?",
    "How much faster without recompute?",
    "Would offloading the activations to the host help?",
)
def change_remat(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time and memory under another remat policy: none, minimal, full, offload."""
    yield from one_setting(ctx, given, "remat", "Remat policy")


@capability(
    "Another weight sharding",
    "What if the weights were fully sharded or only ZeRO-1?",
    "Should I use FSDP or plain data parallelism?",
    "What would ZeRO-1 optimizer sharding change?",
    "Do I need ZeRO-3 here?",
)
def change_sharding(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time and memory with weights and optimizer replicated, optimizer sharded (ZeRO-1) or fully
    sharded."""
    yield from one_setting(ctx, given, "weight_sharding", "Weight sharding")


@capability(
    "Another number of micro-batches",
    "What if I accumulate gradients over more micro-batches?",
    "Does gradient accumulation help?",
    "How many accumulation steps should I use?",
)
def change_micro_batches(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time and memory with another number of micro-batches per step (gradient accumulation)."""
    sized = given.micro_batch or (ctx.bench.config.training.micro_batch and not given.micro_batches)
    yield from one_setting(
        ctx, given, *(("micro_batch", "Micro-batch size") if sized else ("micro_batches", "Micro-batches"))
    )


@capability(
    "Another optimizer",
    "How much memory would another optimizer save?",
    "What if I use adafactor instead of adam?",
    "Does the optimizer matter for speed?",
)
def change_optimizer(ctx: AnswerContext, given: Configured) -> Answer:
    """Predicted step time and memory with another optimizer."""
    yield from one_setting(ctx, given, "optimizer", "Optimizer")


@capability(
    "Why this is not proposed",
    "Why not this mesh?",
    "Why did you not propose a smaller tensor axis?",
    "What is wrong with this configuration?",
    "Why is my mesh not among the proposals?",
    "Why not leave the remat off?",
)
def why_not(ctx: AnswerContext, given: Configured) -> Answer:
    """Checks a configuration against rules, memory and step time: the rule it breaks, or how it compares with proposal
    1."""
    if not given.named:
        one = registry()["why_not"]
        axis = max(ctx.bench.config.mesh.ici, key=lambda item: item[1])[0]
        raise Missing("Name a configuration.", (command(one, {"mesh": f"{axis}=1"}), command(one, {"remat": "none"})))
    named = yield from configurations(ctx, given)
    first = (yield from get(ctx, ModelTools.proposals)).proposals[0]
    for row in named[:3]:
        if row.proposal_number:
            yield from ctx.say(f"{words.configuration(row)} is proposed: it is proposal {row.proposal_number}.")
        yield from priced(ctx, row)
        if why := row.why_not_proposed:
            yield from ctx.say(f"It is not proposed: {why[0].lower()}{why[1:]}")
        if row.violations or row.elsewhere or row.proposal_number == first.number or row.speedup_per_token is None:
            continue
        yield from ctx.say(*verdict.argued(words.configuration(row), row, f"proposal {first.number}", first))
        yield from offers([row])
