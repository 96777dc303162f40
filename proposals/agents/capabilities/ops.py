"""The step by ops: longest ops, one op, modules, phases, categories, roofline, recompute, idle time, stragglers."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from formatting import listed, significant
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability, command, registry
from proposals.agents.capabilities.common import ChipName, get
from proposals.agents.capabilities.explaining import no_profile, predicted_instead, recorded
from proposals.agents.capabilities.findings import findings_about
from proposals.agents.capabilities.shares import NO_OPS, beside, ops_named, shares, time_of
from proposals.agents.diagnosed import OpDetail
from proposals.agents.tools import MachineTools, OpTools, RunTools, StepTools

#: Share of the link bandwidth below which bytes do not explain the time of a collective.
WAITING = 0.1


class OneOp(Arguments):
    op: Annotated[str, Field(max_length=300, description="Name of an op as in the table, or #1 for the longest.")] = (
        "#1"
    )


class ChipQuery(Arguments):
    chip: ChipName = ""


@capability(
    "Longest ops of the step",
    "Which ops take the most time?",
    "Show me the top ten kernels.",
    "What are the hottest operations?",
    "List the most expensive fusions.",
)
def top_ops(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The ops that take the most time, each with its share of the step, its category and what limits it."""
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    rows = (yield from get(ctx, OpTools.ops, top=10)).rows
    if not rows:
        raise ToolError("The profile contains no ops.")
    took = f"{time_of(rows[0])}, {words.share(rows[0].time_share)} of device time"
    yield from ctx.say(f"`{rows[0].name}` takes the most time: {took}.")
    yield from ctx.table(
        ["Op", "Time per step", "Share", "Category", "Limited by"],
        [
            [f"`{r.name}`", time_of(r), words.share(r.time_share), r.family, r.axes or r.bound_by or "–"]
            for r in rows[:8]
        ],
    )


@capability(
    "Details of one op",
    "Explain this op.",
    "What is this op doing and why is it slow?",
    "Tell me about the biggest fusion.",
    "Is this op compute bound or memory bound?",
    "What is the slowest kernel waiting for?",
)
def op(ctx: AnswerContext, given: OneOp) -> Answer:
    """One op: time, what bounds it, roofline position or link bandwidth, its source and neighbours in the program."""
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    named = ops_named(ctx)
    if len(named) > 1:
        yield from beside(ctx, named)
        return
    row = yield from get(ctx, OpTools.op, op=named[0] if named and given.op == "#1" else given.op, hops=1)
    took = f"{words.time(row.time_s)} per step and core, " if row.time_s else ""
    place = "the longest op of the step" if row.rank == 1 else f"rank {row.rank} by time"
    yield from ctx.say(f"`{row.name}` is {place}: {took}{words.share(row.time_share)} of device time.")
    module = f" in {row.module}" if row.module else ""
    items = [f"category: {row.family or row.category}{module}"]
    if row.time_per_call_s:
        each = f", {words.size(row.hbm_bytes_per_call)} of HBM traffic each" if row.hbm_bytes_per_call else ""
        items.append(
            f"{significant(row.calls_per_step_and_core or 0.0)} runs per step and core of "
            f"{words.time(row.time_per_call_s)}{each}; its {row.occurrences:,} occurrences are of all recorded "
            "steps and cores"
        )
    if row.collective:
        items += _collective(row)
    elif row.is_bound:
        roof = row.roofline_efficiency
        items.append(
            f"`{row.name}` is bound by {row.bound_by}"
            + (f" and reaches {words.share(roof)} of that roofline" if roof is not None else "")
        )
    ridge = row.roofline.ridge_flops_per_byte
    if row.operational_intensity and ridge and not row.collective:
        side = "below the ridge point: HBM bandwidth limits it" if row.operational_intensity < ridge else (
            "above the ridge point: arithmetic limits it"
        )  # fmt: skip
        intensity = significant(row.operational_intensity)
        items.append(f"arithmetic intensity {intensity} FLOP/byte, ridge point {significant(ridge)}, {side}")
    if "fusion" in row.name and not row.source:
        items.append(
            "a fusion is one kernel that XLA made of several ops; this profile does not name the ops inside, but the "
            "compiled HLO does (`--xla_dump_to`)"
        )
    if row.source:
        items.append(f"from `{row.source}`" + (f", {row.phase}" if row.phase else ""))
    for side, word in (("operands", "reads the results of"), ("users", "feeds")):
        names = [f"`{each['name']}`" for each in row.neighbourhood.get(side, ())[:3]]
        items += [f"{word} {listed(names)}"] if names else []
    yield from ctx.bullets(items)
    for item in (yield from get(ctx, RunTools.findings)):
        if any(row.key in each.ops for each in item.evidence):
            yield from ctx.say(f"Finding {item.finding}, {item.title}: {item.action}")
            return


def _collective(row: OpDetail) -> list[str]:
    where = f"on {row.axes}" if row.axes else "on an axis that the profile does not report"
    where = "across slices (DCN)" if row.axes == "dcn" else where
    items = [f"{row.collective} {where}" + (f", moving {row.tensor}" if row.tensor else "")]
    if row.achieved_bytes_per_s and row.possible_bytes_per_s:
        items.append(
            f"achieved bandwidth {words.rate(row.achieved_bytes_per_s)} of "
            f"{words.rate(row.possible_bytes_per_s)} possible"
        )
        if row.achieved_bytes_per_s < WAITING * row.possible_bytes_per_s:
            items.append(
                "that far below link bandwidth it is not bandwidth-bound: it waits for the slowest participant, or is "
                "latency-bound by small messages; the profile does not show which"
            )
    if row.exposed_s is not None:
        items.append(f"exposed time of `{row.name}`: {words.time(row.exposed_s)} per step")
    if row.is_bound:
        items.append(
            f"XProf's label “{row.bound_by}” refers to its roofline, which counts FLOPs and local memory traffic; "
            "a collective waits for links and other chips, so it counts as communication here"
        )
    return items


@capability(
    "Attention and MLP, time per step",
    "How much time is spent in attention versus the MLP?",
    "Break the step down by layer type or module.",
    "How long does the softmax or the output head take?",
    "What share of the step is the embedding?",
)
def modules(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time per module of the model: attention, MLP, experts, norms, embedding, output head."""
    yield from shares(
        ctx,
        "module",
        "Module",
        "The profile does not name the modules of its ops: they carry no framework paths.",
        "phase",
    )


@capability(
    "Forward, backward and recompute, time per step",
    "How is the time split between forward and backward pass?",
    "How long does the optimizer update take?",
    "How much time is the backward pass?",
    "What share of the step is the weight update?",
)
def phases(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time per phase of the step: forward, backward, recompute, optimizer."""
    yield from shares(ctx, "phase", "Phase", "The profile does not distinguish forward from backward ops.", "family")


@capability(
    "Time per category of op",
    "How much time goes to matmuls, elementwise ops and data movement?",
    "Break the step down by op category.",
    "What fraction of time are copies, transposes and data formatting?",
    "How much time is in custom calls?",
)
def categories(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time per category of op: matmul, attention kernel, collective, elementwise, reduction, data movement."""
    yield from shares(ctx, "family", "Category", "The profile names no categories.", "phase")


@capability(
    "Time per source line",
    "Which line of my code is the most expensive?",
    "Attribute the time to source files.",
    "Where in the Python source does the time come from?",
)
def sources(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time per line of the program's source, where the profile has it."""
    yield from shares(ctx, "source", "Source", "The profile has no source lines.")


@capability(
    "Roofline and ridge point",
    "What is the ridge point of this chip?",
    "What arithmetic intensity do I need to be compute bound?",
    "Which ops are bound by HBM bandwidth?",
    "Show the roofline.",
    "What peak FLOP/s and memory bandwidth does the chip have?",
)
def roofline(ctx: AnswerContext, given: ChipQuery) -> Answer:
    """The chip's peak FLOP/s, HBM bandwidth and ridge point, and what bounds the ops of this step."""
    chip = yield from get(ctx, MachineTools.hardware, chip=given.chip)
    yield from ctx.say(
        f"{chip.title} in {chip.precision}: peak {words.flops(chip.peak_flops_per_s)}, HBM bandwidth "
        f"{words.rate(chip.hbm_bytes_per_s)}, ridge point "
        f"**{significant(chip.ridge_flops_per_byte)} FLOP/byte**.",
        "An op below it is limited by HBM bandwidth, one above it by arithmetic.",
    )
    if no_profile(ctx) or (given.chip and given.chip != ctx.bench.config.hardware.chip):
        return
    yield from shares(ctx, "bound_by", "Bound by", "The profile does not say what bounds its ops.")


@capability(
    "Chip data",
    "How much HBM does this chip have?",
    "What is the link bandwidth of the interconnect?",
    "Give me the specs of the accelerator.",
    "How fast is the network per host?",
)
def chip_data(ctx: AnswerContext, given: ChipQuery) -> Answer:
    """A chip's memory, peak FLOP/s by precision, HBM, link and network bandwidth."""
    chip = yield from get(ctx, MachineTools.hardware, chip=given.chip)
    rows = [
        ["HBM, nominal", words.size(chip.hbm_capacity_bytes)],
        ["HBM, usable", words.size(chip.hbm_usable_bytes)],
        ["HBM bandwidth", words.rate(chip.hbm_bytes_per_s)],
        *([f"peak {name}", words.flops(value)] for name, value in chip.peaks_flops_per_s.items()),
    ]
    for rate, name in (
        (chip.ici_link_bytes_per_s, "ICI link, one way"), (chip.nvlink_bytes_per_s, "NVLink per GPU, one way"),
        (chip.dcn_bytes_per_s_per_host, "network per host"), (chip.dcn_bytes_per_s_per_chip, "network per chip"),
    ):  # fmt: skip
        rows += [[name, words.rate(rate)]] if rate else []
    yield from ctx.say(f"{chip.title}:")
    yield from ctx.table(["Property", "Value"], rows)


@capability(
    "Matmul efficiency and padding",
    "How well are the matrix units used?",
    "Why do the matmuls run so far below peak?",
    "Are my matrix dimensions padded to the MXU tile size?",
    "Which block sizes would use the tensor cores better?",
)
def matmuls(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The longest matmuls with their roofline efficiency, and what the diagnosis finds on padding and utilisation."""
    chip = yield from get(ctx, MachineTools.hardware)
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
    else:
        rows = (yield from get(ctx, OpTools.ops, category="matmul", top=6)).rows
        if rows:
            yield from ctx.table(
                ["Matmul", "Time per step", "Share", "Bound by", "Of its roofline"],
                [
                    [f"`{r.name}`", time_of(r), words.share(r.time_share), r.bound_by or "–",
                     words.share(r.roofline_efficiency) if r.roofline_efficiency is not None else "–"]
                    for r in rows
                ],
            )  # fmt: skip
        else:
            yield from ctx.say("The profile identifies no matmuls.")
    if chip.matrix_tile:
        yield from ctx.say(
            f"The MXU of {chip.title} pads every matmul dimension to a multiple of {chip.matrix_tile}; sizes "
            "per chip that are multiples of it need no padding."
        )
    yield from findings_about(ctx, ("matmul", "mxu", "padd", "tensor core"))


@capability(
    "Rematerialisation in the step",
    "How much time is spent recomputing activations?",
    "What does rematerialisation cost me?",
    "Is activation checkpointing a problem here?",
)
def recompute(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time of recomputed ops, the policy that is set, and what the diagnosis finds on it."""
    run = yield from get(ctx, RunTools.run)
    policy = run.configuration.get("training", {}).get("remat")
    yield from ctx.say(f"The configured policy is `{policy or 'not given'}`.")
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    data = yield from get(ctx, OpTools.ops, phase="recompute", top=5)
    kinds = yield from get(ctx, OpTools.ops, phase="recompute", group_by="family", top=6)
    if data.matching_time_share:
        took = f"{words.time(data.matching_time_s)} per step, " if data.matching_time_s else ""
        yield from ctx.say(
            f"Recomputed ops take {took}{words.share(data.matching_time_share)} of device time, measured."
        )
        parts = [f"{r.family or 'other'} {words.share(r.time_share)}" for r in kinds.rows if r.time_share > 0]
        if len(parts) > 1:
            yield from ctx.more(f"Of that, {listed(parts)}.")
    else:
        yield from ctx.say("No op of the profile is marked as recomputed.")
    yield from findings_about(ctx, ("remat", "recompute"))
    yield from ctx.say(f"To price other policies: *{command(registry()['change_remat'], {})}*")


@capability(
    "Idle time, input and host",
    "Is the input pipeline stalling the step?",
    "How much idle time is there between ops?",
    "Are we waiting on the host or the data loader?",
    "Is infeed a bottleneck?",
)
def idle(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Time spent waiting: idle, input pipeline, host, host transfers."""
    data = yield from get(ctx, RunTools.kpis)
    shares, step = data.shares, data.step_time_s
    rows = [
        [name, words.time(shares[key] * step) if step else "–", words.share(shares[key])]
        for key, name in (("idle", "idle"), ("input", "input pipeline"), ("host", "host"))
        if key in shares
    ]
    if rows:
        yield from ctx.table(["Waiting for", "Time per step", "Share of the step, measured"], rows)
    for key in ("idle", "input", "host"):
        if key not in shares and (why := data.not_measured.get(key)):
            yield from ctx.say(f"{key.capitalize()} was not measured: {why}.")
    yield from findings_about(ctx, ("idle", "input", "host"))


@capability(
    "Stragglers and skew between cores",
    "Is one chip slower than the others?",
    "Are there stragglers?",
    "How large is the skew between cores?",
    "Is the load balanced over the devices?",
)
def stragglers(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Whether one core is slower than the others: spread of the step time, ops that differ most between cores."""
    data = yield from get(ctx, RunTools.kpis)
    steps = yield from get(ctx, StepTools.steps)
    share = data.shares.get("stragglers")
    if share is not None:
        held = "**No core is slower than the others**" if share < SLOWER else "**Yes**"
        yield from ctx.say(
            f"{held}: the slowest recorded core's own work is {words.share(share)} of the step above the median, "
            "measured."
        )
    else:
        why = data.not_measured.get("stragglers", "the profile does not contain several cores with step markers")
        yield from ctx.say(f"Whether any core is slower is unknown: {why}.")
    yield from ctx.more((yield from recorded(ctx)))
    named = [
        row for row in steps.cores if re.search(rf"(?<!\w){re.escape(row.core)}(?!\w)", ctx.message, re.IGNORECASE)
    ]
    for row in named[:2] or steps.cores[:1]:
        yield from ctx.say(
            f"{row.core}: {words.time(row.mean_step_s)} per step on average, "
            f"{words.share(abs(row.above_the_median_share))} "
            f"{'above' if row.above_the_median_share >= 0 else 'below'} the median core's "
            f"{words.time(steps.median_core_s)}; whole steps, waiting and idle time included."
        )
        if row.steps_s:
            yield from ctx.more(f"Its steps: {', '.join(words.time(value) for value in row.steps_s)}.")
    worst = [op for op in ctx.bench.diagnosis.ops if op.core_max_s and op.core_min_s and op.core_max_s > op.core_min_s]
    worst.sort(key=lambda op: (op.core_min_s or 0.0) - (op.core_max_s or 0.0))
    for each in worst[:1]:
        differing = yield from get(ctx, OpTools.op, op=each.key, hops=0)
        yield from ctx.say(
            f"The op that differs most is `{differing.name}`: {words.time(differing.core_max_s or 0.0)} on the slowest "
            f"core against {words.time(differing.core_min_s or 0.0)} on the fastest."
        )
    yield from findings_about(ctx, ("straggl", "skew", "slow core"))


#: Share of the step from which the slowest core's own work counts.
SLOWER = 0.01
