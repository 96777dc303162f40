"""What another configuration would do: a mesh, a setting, a chip, a number of chips, a kind of parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.tools import ToolError
from formatting import listed
from perfmodel.workload import LOW_PRECISIONS
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import (
    Row,
    board,
    get,
    how,
    memory_table,
    offers,
    priced_table,
    unknown_facts,
)
from proposals.agents.capabilities.configured import (
    SETTINGS,
    Configured,
    away,
    configurations,
    named,
    predict_arguments,
    within,
)


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
        yield from priced_table(ctx, rows, rows[0].get("current") or {})
        illegal = [f"{named(row)}: {words.violations(row)[0]}" for row in rows if row.get("violations")]
        yield from ctx.bullets(illegal)
    if given.mesh and not away(ctx, given) and all(row.get("violations") for row in rows):
        yield from _legal_instead(ctx, given)
    note = next((str(row["note"]) for row in rows if row.get("note")), "")
    yield from ctx.say(note)
    yield from offers([row for row in rows if not row.get("elsewhere")])


def _legal_instead(ctx: AnswerContext, given: Configured) -> Answer:
    """The best legal configuration with the sizes that were named, where what they were taken for is not legal."""
    data = yield from ctx.look("search", top=1, **within(ctx, given.mesh))
    for row in data.data["candidates"] if data else ():
        if row.get("speedup_per_token") and not row.get("is_current"):
            yield from ctx.say(
                f"The best legal configuration with {given.mesh}: {words.configuration(row)}, predicted at "
                f"{words.speed(row)}."
            )


def priced(ctx: AnswerContext, row: Row) -> Answer:
    """One configuration as `predict` has it."""
    broken, ran = words.violations(row), row.get("current") or {}
    name, value = named(row), row.get("speedup_per_token")
    if not row.get("changes") and not row.get("elsewhere") and row.get("mesh_text") == ran.get("mesh_text"):
        yield from ctx.say(
            f"{name} is the current configuration: {words.estimate(ran, how(ctx))} per step, {how(ctx)}."
        )
        return
    if broken:
        yield from ctx.say(f"{name} is **not legal**: {broken[0]}", *broken[1:3])
        if any(item["rule"] == "memory" for item in row["violations"]):
            yield from memory_table(ctx, row)
        return
    stands = f", which is proposal {row['proposal_number']}," if row.get("proposal_number") else ""
    if value is None:
        yield from ctx.say(
            f"{name}{stands} is legal as far as can be checked, but no speed-up can be predicted: "
            f"{facts.not_known(row.get('not_known', ()))}."
        )
        yield from unknown_facts(ctx, row.get("not_known", ()))
        return
    sure = (
        f", with {words.percent(row['confidence_share'])} confidence that it {words.gains(row)}"
        if "confidence_share" in row
        else ""
    )
    each = row.get("speedup_per_token_and_chip")
    yield from ctx.say(
        f"{name}{stands} is predicted at **{words.ratio(value)} per token**{words.within(row)}{sure}"
        f"{f'; per token and chip {words.ratio(each)}' if each else ''}.{words.inconclusive(row)}"
    )
    if ran.get("step_time_s"):
        yield from ctx.say(f"Step time: {words.step(row)} predicted, {words.estimate(ran, how(ctx))} {how(ctx)} now.")
        if {"global_batch", "seq_len"} & set(row.get("changes") or {}):
            yield from ctx.more("The tokens per step differ: compare the time per token.")
    yield from ctx.bullets(list(_effects(row)))
    yield from precision_note(ctx, row)


def precision_note(ctx: AnswerContext, row: Row) -> Answer:
    """What a predicted time does not say of another precision: whether the chip has units for it, and whether training
    converges."""
    precision = (row.get("changes") or {}).get("precision")
    if not precision or row.get("elsewhere"):
        return
    chip = yield from get(ctx, "hardware")
    native = list(chip["peaks_flops_per_s"])
    if precision not in native:
        yield from ctx.say(
            f"**{chip['title']} has no native {precision} matmul support**: matmuls run in another precision, so no "
            f"compute time is saved (native: {listed(native)})."
        )
    elif precision in LOW_PRECISIONS:
        yield from ctx.say(f"Whether training converges in {precision} is not modelled.")


def _effects(row: Row) -> Iterator[str]:
    """What changes most: work, bubble, communication, memory, what lowers the confidence."""
    yield from _parts(row)
    moved = sorted(row.get("communication") or (), key=lambda item: -abs(item["after_share"] - item["before_share"]))
    for item in moved[:2]:
        if abs(item["after_share"] - item["before_share"]) > 1e-9:
            axes = f" on {' and '.join(item['axes'])}" if item.get("axes") else ""
            before, after = words.traffic(item, "before"), words.traffic(item, "after")
            yield f"exposed communication of {item['moves']}{axes}: {before} now, {after} predicted"
    if row.get("hbm_per_chip_bytes"):
        ran = (row.get("current") or {}).get("hbm_per_chip_bytes")
        was = f"; current configuration {words.size(ran['total'])}" if ran and ran.get("total") else ""
        yield f"memory per chip, computed: {words.memory(row)}{was}"
    elif row.get("not_known"):
        yield f"whether it fits in memory cannot be computed: {facts.not_known(row['not_known'])}"
    yield from (f"against it: {text}" for text in (row.get("lowers_confidence") or ())[:2])


def _parts(row: Row) -> Iterator[str]:
    """Work and waiting now and predicted, where a part changes by 1 % of the step; the bubble of a pipeline always."""
    ran = row.get("current") or {}
    before, after = ran.get("breakdown_s") or {}, row.get("breakdown_s") or {}
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
    of: dict[str, object] = {}
    if given.named:
        of = (yield from predict_arguments(ctx, given))[0]
    data = yield from get(ctx, "vary", **asked, **({"of": of} if of else {}))
    if given.named:
        yield from ctx.say(f"Everything else as in {words.configuration(_row(of))}:")
    yield from side_by_side(ctx, data, head)


def _row(of: Mapping[str, Any]) -> Row:
    mesh = {key: of[key] for key in ("ici", "dcn") if key in of}
    return {"mesh_text": words.mesh_of(mesh).strip("`"), "changes": of.get("changes")}


def side_by_side(ctx: AnswerContext, data: Row, head: str) -> Answer:
    """One key or axis over its values, as `vary` has it."""
    rows = [row for row in data["rows"] if not row.get("reason")]
    if not rows:
        raise ToolError(str(data["rows"][0]["reason"]) if data["rows"] else "There is no value to try.")
    names = [str(row["value"]) + (" (current)" if row.get("now") else "") for row in rows]
    if not any(row.get("speedup_per_token") for row in rows):
        yield from ctx.say("No gain can be predicted while facts about the run are missing; only legality is checked.")
    yield from priced_table(ctx, rows, data["current"], head, names)
    best = max(
        (r for r in rows if r.get("may_run") and r.get("speedup_per_token")),
        key=lambda r: r["speedup_per_token"],
        default=None,
    )
    if best is not None and best.get("now"):
        yield from ctx.say("The current value is predicted fastest.")
    elif best is not None:
        yield from ctx.say(f"Predicted fastest: **{best['value']}**, {words.speed(best)}.{words.inconclusive(best)}")
    illegal = [row for row in rows if row.get("violations")]
    yield from ctx.bullets([f"{row['value']}: {words.violations(row)[0]}" for row in illegal[:4]])
    lacking = next((row["not_known"] for row in rows if row.get("not_known")), ())
    if lacking and not any(row.get("hbm_per_chip_bytes") for row in rows):
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
        row = yield from get(ctx, "legality", **rows[0])
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
    rows, _, _ = yield from board(ctx)
    first = rows[0]
    for row in named[:3]:
        if row.get("proposal_number"):
            yield from ctx.say(f"{words.configuration(row)} is proposed: it is proposal {row['proposal_number']}.")
        yield from priced(ctx, row)
        if why := row.get("why_not_proposed"):
            yield from ctx.say(f"It is not proposed: {why[0].lower()}{why[1:]}")
        if (
            row.get("violations")
            or row.get("proposal_number") == first["number"]
            or row.get("speedup_per_token") is None
        ):
            continue
        yield from ctx.say(*verdict.argued(words.configuration(row), row, f"proposal {first['number']}", first))
        yield from offers([row])
