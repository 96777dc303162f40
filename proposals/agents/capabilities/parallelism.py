"""Kinds of parallelism, each over the sizes of its axis, and proposals combined."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments
from formatting import listed
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import Axis, as_arguments, get, name_of, offers, priced_table
from proposals.agents.capabilities.configured import Configured
from proposals.agents.capabilities.pricing import price, priced, varied
from proposals.agents.tools import ModelTools


class AxisSweep(Configured):
    axis: Axis = ""


def _sweep(ctx: AnswerContext, role: str, given: Configured, note: str = "") -> Answer:
    """A kind of parallelism: the configuration that is named, or sizes of its axis side by side."""
    yield from ctx.say(note)
    if given.named:
        yield from price(ctx, given.but())
        return
    yield from varied(ctx, Configured(), "Size", key="axis", axis=role)


@capability(
    "Tensor parallelism",
    "Should I use more or less tensor parallelism?",
    "What is the best degree of model parallelism?",
    "Is tensor parallelism across nodes a bad idea?",
)
def tensor(ctx: AnswerContext, given: Configured) -> Answer:
    """Compares sizes of the tensor (model) axis."""
    yield from _sweep(ctx, "model", given)


@capability(
    "Pipeline parallelism",
    "Should I use pipeline parallelism here?",
    "What would pipeline stages do?",
    "How large is the pipeline bubble?",
)
def pipeline(ctx: AnswerContext, given: Configured) -> Answer:
    """Compares sizes of a pipeline axis, bubble included."""
    yield from _sweep(ctx, "pipeline", given)


@capability(
    "Expert parallelism",
    "Would expert parallelism help?",
    "How should the experts be sharded?",
    "How expensive is the MoE all-to-all with more expert shards?",
)
def expert(ctx: AnswerContext, given: Configured) -> Answer:
    """Compares sizes of the expert axis of an MoE model."""
    model = ctx.bench.config.model
    if model is not None and not model.experts:
        yield from ctx.say(
            f"{model.name or 'The model'} is dense: it has no experts, so there is nothing for an expert axis to shard."
        )
        return
    yield from _sweep(ctx, "expert", given)


@capability(
    "Context parallelism",
    "Should I use context or sequence parallelism?",
    "Would ring attention or Ulysses be better than gathering keys and values?",
    "How should I shard long sequences?",
    "Is Megatron's sequence parallelism the same as a sequence axis?",
)
def context(ctx: AnswerContext, given: Configured) -> Answer:
    """Compares sizes of the sequence (context) axis; KV traffic is priced, its kernel is not."""
    yield from _megatron(ctx)
    yield from _sweep(
        ctx,
        "seq",
        given,
        "The traffic of keys and values on the axis is priced; ring, Ulysses and all-gather kernels are not "
        "distinguished (*not supported*).",
    )


def _megatron(ctx: AnswerContext) -> Answer:
    """Megatron's sequence parallelism shares the name and no axis."""
    asked = re.search(r"sequence[-_ ]parallel|\bmegatron\b|\bkorthikanti\b", ctx.message, re.IGNORECASE)
    if not asked:
        return
    on = ctx.bench.config.training.sequence_parallel
    state = "is not stated in this configuration, so the framework's default is assumed" if on is None else (
        f"is **{'on' if on else 'off'}** in this configuration, and priced accordingly"
    )  # fmt: skip
    yield from ctx.say(
        "Megatron's *sequence parallelism* (`sequence_parallel`) has no axis of its own: it shards norms, dropout and "
        f"residuals over the ranks of the tensor axis. It {state}. A *seq* or *context* axis shards the tokens of "
        "every layer, attention included."
    )


@capability(
    "Hybrid sharding (HSDP)",
    "Should I replicate weights across groups with HSDP?",
    "Is hybrid sharded data parallel better than pure FSDP?",
    "What about replicas between nodes and sharding inside?",
)
def hsdp(ctx: AnswerContext, given: Configured) -> Answer:
    """Compares numbers of replica groups, with weights sharded within each group."""
    yield from _sweep(ctx, "replica", given)


@capability(
    "One axis at other sizes",
    "What if this axis were larger or smaller?",
    "Try all sizes of this axis.",
    "How sensitive is the step to the size of one mesh axis?",
)
def one_axis(ctx: AnswerContext, given: AxisSweep) -> Answer:
    """One mesh axis over its possible sizes; the other axes are adjusted to the chip count."""
    if not given.axis and not given.named:
        one = registry()["one_axis"]
        axes = [axis for axis, _ in ctx.bench.config.mesh.ici]
        raise Missing("Name an axis of the mesh.", tuple(command(one, {"axis": axis}) for axis in axes[:3]))
    yield from _sweep(ctx, given.axis, given)


@capability(
    "Sharding layer by layer",
    "Can only the MLP weights be sharded over the model axis?",
    "Can I shard the embedding differently from the other layers?",
    "Use different parallelism for attention and for the feed-forward layers.",
    "Can the attention stay replicated while the rest is sharded?",
)
def per_layer(ctx: AnswerContext, given: Configured) -> Answer:
    """Sharding that differs between layers or weights, which the performance model does not price."""
    yield from ctx.say(
        "*Not supported*: the performance model prices one mesh for all layers, so sharding single weights or layers "
        "differently cannot be predicted here, and nothing was changed. The same axis can be priced for the whole "
        "model."
    )
    if given.named:
        yield from price(ctx, given)


class Several(Arguments):
    proposals: Annotated[tuple[int, ...], Field(max_length=4, description="Numbers of proposals, such as 1, 2.")] = ()


@capability(
    "Proposals combined",
    "Combine these proposals.",
    "Can I take the mesh of one proposal and the settings of another?",
    "What if I apply two proposals at once?",
    "Use both changes together.",
)
def combine(ctx: AnswerContext, given: Several) -> Answer:
    """The mesh of one proposal with the training settings of the others, priced as one configuration."""
    data = yield from get(ctx, ModelTools.proposals)
    ran, by = data.current, {row.number or 0: row for row in data.proposals}
    numbers = [n for n in given.proposals if n in by]
    if len(numbers) < 2:
        one, have = registry()["combine"], list(by)
        pairs = [(a, b) for i, a in enumerate(have) for b in have[i + 1 :]]
        raise Missing("Name two proposals.", tuple(command(one, {"proposals": pair}) for pair in pairs[:3]))
    chosen = [by[n] for n in numbers]
    meshes = [row for row in chosen if row.mesh_text != ran.mesh_text]
    changes: dict[str, Any] = {}
    for row in reversed(chosen):
        changes |= row.changes
    if len({row.mesh_text for row in meshes}) > 1:
        named = listed([f"{name_of(row)} has {words.mesh(row)}" for row in meshes])
        yield from ctx.say(
            f"Their meshes differ ({named}), and a run has only one: each is priced with the settings of all."
        )
    priced_rows = []
    for base in {row.mesh_text: row for row in meshes or chosen[:1]}.values():
        row = yield from get(ctx, ModelTools.predict, **{**as_arguments(base), "changes": changes})
        priced_rows.append(row)
        yield from priced(ctx, row)
    yield from ctx.say("Individually:")
    yield from priced_table(ctx, chosen, ran, names=[name_of(row) for row in chosen])
    yield from offers(priced_rows)
