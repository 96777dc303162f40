"""What another configuration would do: a mesh, a setting, a chip, a number of chips, a kind of parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import (
    Axis,
    Batch,
    ChipName,
    Chips,
    Configured,
    Length,
    MeshText,
    Micro,
    Number,
    Precision,
    Remat,
    Row,
    Sharding,
    as_arguments,
    board,
    get,
    how,
    meant,
    memory_table,
    name_of,
    offers,
    priced_table,
    unknown_facts,
)
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.capabilities.memory import counts_table


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
        yield from desk.say(f"{name}{stands} is legal as far as is known, but no speed-up can be predicted: {facts.not_known(row.get('not_known', ()))}.")
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


class WithPrecision(Arguments):
    precision: Precision = ""


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
    best = max((r for r in rows if r.get("may_run") and r.get("speedup_per_token")), key=lambda r: r["speedup_per_token"], default=None)
    if best is not None and best.get("now"):
        yield from desk.say("The current value is predicted fastest.")
    elif best is not None:
        yield from desk.say(
            f"Predicted fastest: **{best['value']}**, {words.speed(best)}.{words.inconclusive(best)}"
        )
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
        yield from desk.say("The current global batch is not known, so a gain cannot be predicted; legality is checked.")
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
            f"{chip['title']} has no {given.precision} units: matmuls run in another precision, so no arithmetic is saved "
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
        lines.append([precision, words.estimate(row), words.ratio(row["speedup_per_token"]) if row.get("speedup_per_token") else "–",
                      words.span(row), words.memory(row)])  # fmt: skip
    yield from desk.table(["Precision", "Step, predicted", "Per token", "80 % interval", "Memory per chip"], lines)
    verdict_ = yield from get(desk, "bottleneck")
    yield from desk.say(
        f"Only time that arithmetic takes gets shorter; the bottleneck of this step is {verdict_['primary']}. Numerical "
        "quality is not modelled."
    )


@capability(
    "Another weight sharding",
    "What if the weights were fully sharded or only ZeRO-1?",
    "Should I use FSDP or plain data parallelism?",
    "What would ZeRO-1 optimizer sharding change?",
    "Do I need ZeRO-3 here?",
)
def change_sharding(desk: Desk, given: WithSharding) -> Answer:
    """Predicted step time and memory with weights and optimizer replicated, optimizer sharded (ZeRO-1) or fully sharded."""
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
    where = f"{row['chips']:,} {row['chip']} chips ({row['topology']}{', ' + str(row['slices']) + ' slices' if row['slices'] > 1 else ''})"
    if row.get("violations"):
        yield from desk.say(f"On {where}, {words.mesh(row)}: **does not run**: {row['violations'][0]['reason']}")
        return
    speed = f", **{words.ratio(row['speedup_per_token'])} per token** (80 % interval {words.span(row)})" if row.get("speedup_per_token") else ""
    each = f"; per token and chip {words.ratio(row['speedup_per_token_and_chip'])}" if row.get("speedup_per_token_and_chip") else ""
    measured = f" against {words.estimate(now)} {how(desk)} now" if now.get("step_time_s") else ""
    yield from desk.say(f"On {where}, mesh {words.mesh(row)}: a step of {words.estimate(row)} predicted{measured}{speed}{each}; {words.memory(row)} per chip.")
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


class Role(Arguments):
    mesh: MeshText = ""


class OnOneAxis(Arguments):
    axis: Axis = ""
    mesh: MeshText = ""


def _sweep(desk: Desk, role: str, mesh: str, note: str = "") -> Answer:
    """A kind of parallelism: the configuration that is named, or sizes of its axis side by side."""
    if note:
        yield from desk.say(note)
    if mesh:
        yield from price(desk, Configured(mesh=mesh))
        return
    data = yield from get(desk, "vary", key="axis", axis=role)
    yield from side_by_side(desk, data, "Size")


@capability(
    "Tensor parallelism",
    "Should I use more or less tensor parallelism?",
    "What is the best degree of model parallelism?",
    "Is tensor parallelism across nodes a bad idea?",
)
def tensor(desk: Desk, given: Role) -> Answer:
    """Sizes of the tensor (model) axis side by side."""
    yield from _sweep(desk, "model", given.mesh)


@capability(
    "Pipeline parallelism",
    "Should I use pipeline parallelism here?",
    "What would pipeline stages do?",
    "How large is the pipeline bubble?",
)
def pipeline(desk: Desk, given: Role) -> Answer:
    """Sizes of a pipeline axis side by side, bubble included."""
    yield from _sweep(desk, "pipeline", given.mesh)


@capability(
    "Expert parallelism",
    "Would expert parallelism help?",
    "How should the experts be sharded?",
    "How expensive is the MoE all-to-all with more expert shards?",
)
def expert(desk: Desk, given: Role) -> Answer:
    """Sizes of the expert axis side by side, for a mixture of experts."""
    model = desk.bench.config.model
    if model is not None and not model.experts:
        yield from desk.say(f"{model.name or 'The model'} is dense: it has no experts, so an expert axis shards nothing of its own.")
        return
    yield from _sweep(desk, "expert", given.mesh)


@capability(
    "Context parallelism",
    "Should I use context or sequence parallelism?",
    "Would ring attention or Ulysses be better than gathering keys and values?",
    "How should I shard long sequences?",
)
def context(desk: Desk, given: Role) -> Answer:
    """Sizes of the sequence (context) axis side by side; the exchange of keys and values is priced, not its kernel."""
    yield from _sweep(
        desk,
        "seq",
        given.mesh,
        "The traffic of keys and values on the axis is priced; ring, Ulysses and all-gather kernels are not told apart "
        "(*not supported*).",
    )


@capability(
    "Hybrid sharding (HSDP)",
    "Should I replicate weights across groups with HSDP?",
    "Is hybrid sharded data parallel better than pure FSDP?",
    "What about replicas between nodes and sharding inside?",
)
def hsdp(desk: Desk, given: Role) -> Answer:
    """Numbers of replica groups side by side, weights sharded within each group."""
    yield from _sweep(desk, "replica", given.mesh)


@capability(
    "One axis at other sizes",
    "What if this axis were larger or smaller?",
    "Try all sizes of this axis.",
    "How sensitive is the step to the size of one mesh axis?",
)
def one_axis(desk: Desk, given: OnOneAxis) -> Answer:
    """One axis of the mesh over its possible sizes, everything else filled so that the product fits."""
    if not given.axis and not given.mesh:
        one = registry()["one_axis"]
        axes = [axis for axis, _ in desk.bench.config.mesh.ici]
        raise Missing("Say which axis.", tuple(command(one, {"axis": axis}) for axis in axes[:3]))
    yield from _sweep(desk, given.axis, given.mesh)


@capability(
    "Sharding layer by layer",
    "Can only the MLP weights be sharded over the model axis?",
    "Can I shard the embedding differently from the other layers?",
    "Use different parallelism for attention and for the feed-forward layers.",
    "Can the attention stay replicated while the rest is sharded?",
)
def per_layer(desk: Desk, given: Role) -> Answer:
    """Sharding that differs between layers or weights, which the performance model does not price."""
    yield from desk.say(
        "*Not supported*: the performance model prices one mesh for all layers, so a sharding of single weights or layers "
        "cannot be predicted here, and nothing was changed. What can be priced is the same axis for the whole model."
    )
    if given.mesh:
        yield from price(desk, Configured(mesh=given.mesh))


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
        raise Missing("Say which configuration.", (command(one, {"mesh": f"{axis}=1"}), command(one, {"remat": "none"})))
    found = yield from meant(desk, given)
    rows, _, _ = yield from board(desk)
    first = rows[0]
    for item in found[:2]:
        row = yield from get(desk, "predict", **item)
        if row.get("stands_as_proposal"):
            yield from desk.say(f"{words.configuration(row)} is proposed: it is proposal {row['stands_as_proposal']}.")
        yield from priced(desk, row)
        if row.get("violations") or row.get("stands_as_proposal") == first["number"] or row.get("speedup_per_token") is None:
            continue
        yield from desk.say(*verdict.argued(words.configuration(row), row, f"proposal {first['number']}", first))
        yield from offers([row])


class Several(Arguments):
    proposals: Annotated[tuple[int, ...], Field(max_length=4, description="Numbers of proposals, such as 1, 2.")] = ()


@capability(
    "Proposals combined",
    "Combine these proposals.",
    "Can I take the mesh of one proposal and the settings of another?",
    "What if I apply two proposals at once?",
    "Use both changes together.",
)
def combine(desk: Desk, given: Several) -> Answer:
    """The mesh of one proposal with the training settings of the others, priced as one configuration."""
    rows, ran, _ = yield from board(desk)
    by = {row["number"]: row for row in rows}
    numbers = [n for n in given.proposals if n in by]
    if len(numbers) < 2:
        one, have = registry()["combine"], list(by)
        pairs = [(a, b) for i, a in enumerate(have) for b in have[i + 1 :]]
        raise Missing("Say which two proposals.", tuple(command(one, {"proposals": pair}) for pair in pairs[:3]))
    chosen = [by[n] for n in numbers]
    meshes = [row for row in chosen if row["mesh_text"] != ran["mesh_text"]]
    changes: dict[str, Any] = {}
    for row in reversed(chosen):
        changes |= row.get("changes") or {}
    if len({row["mesh_text"] for row in meshes}) > 1:
        listed = words.listed([f"{name_of(row)} has {words.mesh(row)}" for row in meshes])
        yield from desk.say(f"They name different meshes ({listed}), and a run has one: each is priced with the settings of all.")
    priced_rows = []
    for base in {row["mesh_text"]: row for row in meshes or chosen[:1]}.values():
        row = yield from get(desk, "predict", **{**as_arguments(base), "changes": changes})
        priced_rows.append(row)
        yield from priced(desk, row)
    yield from desk.say("By themselves:")
    yield from priced_table(desk, chosen, ran, names=[name_of(row) for row in chosen])
    yield from offers(priced_rows)
