"""What another configuration would do: a mesh, a setting, a chip, a number of chips, a kind of parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import (
    Batch,
    Configured,
    Length,
    MeshText,
    Micro,
    Number,
    Remat,
    Row,
    Sharding,
    board,
    get,
    how,
    meant,
    memory_table,
    offers,
    priced_table,
    unknown_facts,
)
from proposals.agents.capabilities.desk import Answer, Desk


def price(desk: Desk, given: Configured) -> Answer:
    """What a configuration is predicted to do, against the current one."""
    found = yield from meant(desk, given)
    rows = []
    for item in found:
        row = yield from get(desk, "predict", **item)
        rows.append(row)
    if len(rows) > 1:
        yield from desk.say("The sizes named leave open which axis takes the rest; each way is priced:")
        yield from priced_table(desk, rows, rows[0].get("what_runs") or {})
    else:
        yield from priced(desk, rows[0])
    yield from offers(rows)


def priced(desk: Desk, row: Row) -> Answer:
    """One configuration as `predict` has it."""
    broken, ran = words.violations(row), row.get("what_runs") or {}
    name, value = words.configuration(row), row.get("speedup_per_token")
    if not row.get("changes") and row.get("mesh_text") == ran.get("mesh_text"):
        yield from desk.say(f"{name} is the current configuration: {words.estimate(ran)} per step, {how(desk)}.")
        return
    if broken:
        yield from desk.say(f"{name} is **not legal**: {broken[0]}", *broken[1:3])
        if any(item["rule"] == "memory" for item in row["violations"]):
            yield from memory_table(desk, row)
        return
    stands = f", which is proposal {row['stands_as_proposal']}," if row.get("stands_as_proposal") else ""
    if value is None:
        yield from desk.say(
            f"{name}{stands} is legal as far as is known, but no speed-up can be predicted: "
            f"{facts.not_known(row.get('not_known', ()))}."
        )
        yield from unknown_facts(desk, row.get("not_known", ()))
        return
    yield from desk.say(
        f"{name}{stands} is predicted at **{words.ratio(value)} per token**{words.within(row)}, with "
        f"{words.percent(row['confidence_share'])} confidence that it {words.gains(row)}.{words.inconclusive(row)}"
    )
    if ran.get("step_time_s"):
        yield from desk.say(f"Step time: {words.step(row)} predicted, {words.estimate(ran)} {how(desk)} now.")
        if {"global_batch", "seq_len"} & set(row.get("changes") or {}):
            yield from desk.more("The step holds another number of tokens: compare the time per token.")
    yield from desk.bullets(list(_effects(row)))


def _effects(row: Row) -> Iterator[str]:
    """What changes most: communication, memory, what lowers the confidence."""
    moved = sorted(row.get("communication") or (), key=lambda item: -abs(item["after_share"] - item["before_share"]))
    for item in moved[:2]:
        if abs(item["after_share"] - item["before_share"]) > 1e-9:
            axes = f" on {' and '.join(item['axes'])}" if item.get("axes") else ""
            before, after = words.traffic(item, "before"), words.traffic(item, "after")
            yield f"exposed communication of {item['moves']}{axes}: {before} now, {after} predicted"
    if row.get("hbm_per_chip_bytes"):
        ran = (row.get("what_runs") or {}).get("hbm_per_chip_bytes")
        was = f"; current configuration {words.size(ran['total'])}" if ran and ran.get("total") else ""
        yield f"memory per chip, computed: {words.memory(row)}{was}"
    elif row.get("not_known"):
        yield f"whether it fits in memory cannot be computed: {facts.not_known(row['not_known'])}"
    yield from (f"against it: {text}" for text in (row.get("lowers_confidence") or ())[:2])


@capability(
    "Price of a configuration",
    "What would happen with this mesh?",
    "Price this mesh for me.",
    "How fast would it be with this sharding?",
    "What if I used this mesh with this batch?",
    "What would HSDP with this mesh do?",
    "Predict the step time of this layout.",
)
def price_mesh(desk: Desk, given: Configured) -> Answer:
    """Predicted step time, memory, legality and confidence of any mesh with any training settings."""
    if not given.named:
        now = desk.bench.config.mesh.text().replace(" · ", ", ")
        raise Missing(
            "Name a mesh, such as the current one with other sizes, or a proposal.",
            (command(registry()["price_mesh"], {"proposal": 1}), command(registry()["price_mesh"], {"mesh": now})),
        )
    yield from price(desk, given)


class WithBatch(Arguments):
    batch: Batch = None
    proposal: Number = None
    mesh: MeshText = ""
    seq_len: Length = None
    micro_batches: Micro = None


class WithLength(Arguments):
    seq_len: Length = None
    proposal: Number = None
    mesh: MeshText = ""
    batch: Batch = None


class WithRemat(Arguments):
    remat: Remat = ""
    proposal: Number = None
    mesh: MeshText = ""


class WithSharding(Arguments):
    weight_sharding: Sharding = ""
    proposal: Number = None
    mesh: MeshText = ""


class WithMicro(Arguments):
    micro_batches: Micro = None
    proposal: Number = None
    mesh: MeshText = ""


class WithOptimizer(Arguments):
    optimizer: Annotated[str, Field(max_length=20, description="Optimizer, such as adafactor.")] = ""


def _or_all(desk: Desk, given: Arguments, field: str, key: str, head: str) -> Answer:
    """The value that is given priced, or the usual ones side by side."""
    if getattr(given, field):
        yield from price(desk, Configured(**given.model_dump()))
        return
    data = yield from get(desk, "vary", key=key)
    yield from side_by_side(desk, data, head)


def side_by_side(desk: Desk, data: Row, head: str) -> Answer:
    """One key or axis over its values, as `vary` has it."""
    rows = [row for row in data["rows"] if not row.get("reason")]
    if not rows:
        raise ToolError(str(data["rows"][0]["reason"]) if data["rows"] else "There is no value to try.")
    names = [str(row["value"]) + (" (current)" if row.get("now") else "") for row in rows]
    if not any(row.get("speedup_per_token") for row in rows):
        yield from desk.say("No gain can be predicted while facts of the run are missing; legality is checked.")
    yield from priced_table(desk, rows, data["what_runs"], head, names)
    best = max(
        (r for r in rows if r.get("may_run") and r.get("speedup_per_token")),
        key=lambda r: r["speedup_per_token"],
        default=None,
    )
    if best is not None and best.get("now"):
        yield from desk.say("The current value is predicted fastest.")
    elif best is not None:
        yield from desk.say(f"Predicted fastest: **{best['value']}**, {words.speed(best)}.{words.inconclusive(best)}")
    illegal = [row for row in rows if row.get("violations")]
    yield from desk.bullets([f"{row['value']}: {words.violations(row)[0]}" for row in illegal[:4]])
    lacking = next((row["not_known"] for row in rows if row.get("not_known")), ())
    yield from unknown_facts(desk, lacking)
    yield from offers(rows, 1)


@capability(
    "Another batch size",
    "What if the global batch were larger?",
    "How does the batch size change throughput?",
    "Should I double the batch?",
    "What happens with more sequences per chip?",
)
def change_batch(desk: Desk, given: WithBatch) -> Answer:
    """Predicted step time per token and memory with another global batch; without one, the powers of two around now."""
    config = desk.bench.config.training
    if given.batch and config.global_batch is None:
        yield from desk.say(
            "The current global batch is not known, so a gain cannot be predicted; legality is checked."
        )
        found = yield from meant(desk, Configured(**given.model_dump()))
        row = yield from get(desk, "legality", **found[0])
        broken = words.violations(row)
        yield from desk.say(f"It is **not legal**: {broken[0]}" if broken else "It breaks no rule that can be checked.")
        yield from unknown_facts(desk, ["training.global_batch"])
        return
    yield from _or_all(desk, given, "batch", "global_batch", "Global batch")


@capability(
    "Another sequence length",
    "What if the sequence length were longer?",
    "How does step time scale with context length?",
    "Can I train with a longer context?",
)
def change_seq_len(desk: Desk, given: WithLength) -> Answer:
    """Predicted time per token and memory with another sequence length; without one, powers of two around now."""
    if desk.bench.config.training.seq_len is None:
        yield from unknown_facts(desk, ["training.seq_len"])
        return
    yield from _or_all(desk, given, "seq_len", "seq_len", "Sequence length")


@capability(
    "Another rematerialisation policy",
    "What if I turn off remat?",
    "Which activation checkpointing policy is best here?",
    "How much faster without recompute?",
    "Would offloading the activations to the host help?",
)
def change_remat(desk: Desk, given: WithRemat) -> Answer:
    """Predicted step time and memory under another remat policy: none, minimal, full, offload."""
    yield from _or_all(desk, given, "remat", "remat", "Remat policy")


@capability(
    "Another weight sharding",
    "What if the weights were fully sharded or only ZeRO-1?",
    "Should I use FSDP or plain data parallelism?",
    "What would ZeRO-1 optimizer sharding change?",
    "Do I need ZeRO-3 here?",
)
def change_sharding(desk: Desk, given: WithSharding) -> Answer:
    """Predicted step time and memory with weights and optimizer replicated, optimizer sharded (ZeRO-1) or fully
    sharded."""
    yield from _or_all(desk, given, "weight_sharding", "weight_sharding", "Weight sharding")


@capability(
    "Another number of micro-batches",
    "What if I accumulate gradients over more micro-batches?",
    "Does gradient accumulation help?",
    "How many accumulation steps should I use?",
)
def change_micro_batches(desk: Desk, given: WithMicro) -> Answer:
    """Predicted step time and memory with another number of micro-batches per step (gradient accumulation)."""
    yield from _or_all(desk, given, "micro_batches", "grad_accum", "Micro-batches")


@capability(
    "Another optimizer",
    "How much memory would another optimizer save?",
    "What if I use adafactor instead of adam?",
    "Does the optimizer matter for speed?",
)
def change_optimizer(desk: Desk, given: WithOptimizer) -> Answer:
    """Predicted step time and memory with another optimizer."""
    yield from _or_all(desk, given, "optimizer", "optimizer", "Optimizer")


@capability(
    "Why this is not proposed",
    "Why not this mesh?",
    "Why did you not propose a smaller tensor axis?",
    "What is wrong with this configuration?",
    "Why is my mesh not among the proposals?",
    "Why not leave the remat off?",
)
def why_not(desk: Desk, given: Configured) -> Answer:
    """A configuration against the rules, memory and time: the rule it breaks, or how it compares with proposal 1."""
    if not given.named:
        one = registry()["why_not"]
        axis = max(desk.bench.config.mesh.ici, key=lambda item: item[1])[0]
        raise Missing(
            "Say which configuration.", (command(one, {"mesh": f"{axis}=1"}), command(one, {"remat": "none"}))
        )
    found = yield from meant(desk, given)
    rows, _, _ = yield from board(desk)
    first = rows[0]
    for item in found[:2]:
        row = yield from get(desk, "predict", **item)
        if row.get("stands_as_proposal"):
            yield from desk.say(f"{words.configuration(row)} is proposed: it is proposal {row['stands_as_proposal']}.")
        yield from priced(desk, row)
        if (
            row.get("violations")
            or row.get("stands_as_proposal") == first["number"]
            or row.get("speedup_per_token") is None
        ):
            continue
        yield from desk.say(*verdict.argued(words.configuration(row), row, f"proposal {first['number']}", first))
        yield from offers([row])
