"""Beyond the three proposals: the best candidates, what was rejected, what is legal, launch files, a measured
result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from formatting import limit, listed
from perfmodel.config import framework_of
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import About, MeshText, get, offers, which, whole
from proposals.agents.capabilities.communication import explain_flags
from proposals.agents.capabilities.configured import Configured, predict_arguments, within
from proposals.agents.capabilities.pricing import price
from proposals.agents.grounding_match import proposals_named
from proposals.agents.priced import Rejected
from proposals.agents.tools import FlagTools, LaunchTools, MachineTools, ModelTools


class Sizes(Arguments):
    mesh: Annotated[MeshText, Field(description="Sizes that every candidate has, such as model=1.")] = ""


@capability(
    "Best legal candidates",
    "What are the best configurations of all?",
    "Is there anything better than the proposals?",
    "List the top ten candidates of the search.",
    "What is the optimal mesh?",
)
def search(ctx: AnswerContext, given: Sizes) -> Answer:
    """The best-ranked legal candidates under the conversation's constraints and the given sizes."""
    data = yield from get(ctx, ModelTools.search, top=8, **within(ctx, given.mesh))
    rows = [row for row in data.candidates if row.speedup_per_token and not (given.mesh and row.is_current)]
    if not rows:
        yield from ctx.say("No candidate of the search has these sizes. Priced individually:")
        yield from price(ctx, Configured(mesh=given.mesh))
        return
    if given.mesh:
        yield from ctx.say(f"With {given.mesh}:")
    names = [
        words.configuration(row)
        + (f" (proposal {row.proposal_number})" if row.proposal_number else "")
        + (" (current)" if row.is_current else "")
        for row in rows
    ]
    lines = [
        [
            name, words.gain(row), words.span(row), words.confidence(row),
            words.size(row.memory_headroom_bytes) if row.memory_headroom_bytes is not None else "–",
        ]
        for name, row in zip(names, rows, strict=True)
    ]  # fmt: skip
    held = ctx.bench.constraints.describe()
    if held:
        yield from ctx.say(f"Under these constraints: {' '.join(held)}")
    yield from ctx.table(
        ["Configuration", "Per token, predicted", "80 % interval", "Confidence", "Memory headroom"], lines
    )
    yield from ctx.say("Ranked by expected gain minus the cost of a failed run.")
    yield from offers([row.model_copy(update={"may_run": not row.is_current}) for row in rows], 1)


@capability(
    "Rejected meshes",
    "What did you reject and why?",
    "Which meshes are illegal here?",
    "How many configurations were ruled out by memory?",
    "Which rule excludes most candidates?",
)
def rejected(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Rejected meshes, nearest to the current one first, each with the rule that it breaks."""
    data = yield from get(ctx, ModelTools.rejected, top=8)
    if not data.rows:
        raise ToolError("No mesh was rejected.")
    lines = [[words.mesh(row), words.rule(row.rule), row.reason] for row in data.rows]
    yield from ctx.table(["Mesh", "Rule", "Why"], lines)
    yield from ctx.say(_by_rule(data))


def _by_rule(data: Rejected) -> str:
    counts = [f"{words.rule(rule)} {count}" for rule, count in data.count_by_rule.items()]
    broken = listed(counts) or "none"
    return f"Of {data.meshes_considered:,} meshes considered, by the first rule each broke: {broken}."


@capability(
    "Legal meshes and divisors",
    "What must my batch be divisible by?",
    "Which meshes are legal on this slice?",
    "Which sizes may the tensor axis have?",
    "Is this mesh valid for the topology?",
    "What are the divisibility rules?",
)
def legal(ctx: AnswerContext, given: Configured) -> Answer:
    """What the batch must divide by, the model sizes that axes must divide, and whether a mesh is legal."""
    if given.named:
        configurations = yield from predict_arguments(ctx, given)
        row = yield from get(ctx, ModelTools.legality, **configurations[0])
        broken = words.violations(row)
        yield from ctx.say(
            f"{words.configuration(row)} is **not legal**: {broken[0]}"
            if broken
            else f"{words.configuration(row)} is **legal**, as far as can be checked."
        )
        yield from ctx.bullets(broken[1:4])
        return
    data = yield from get(ctx, MachineTools.divisors)
    yield from ctx.say(
        f"On `{data.mesh_text}` the global batch must be a multiple of **{data.batch_must_divide_by:,}** "
        f"({data.batch_shards:,} batch shards, {data.grad_accum:,} micro-batches)."
    )
    if data.model_sizes:
        sizes = [f"{words.rule(name)} {value:,}" for name, value in data.model_sizes.items()]
        yield from ctx.say(f"Axes must divide the model's sizes: {listed(sizes)}.")
    yield from ctx.say(_by_rule((yield from get(ctx, ModelTools.rejected, top=1))))
    yield from search(ctx, Sizes())


class Launch(About):
    tool: Annotated[str, Field(max_length=20, description="maxtext, jax, axlearn, megatron or yaml.")] = ""


@capability(
    "Launch files",
    "Give me the launch flags for the proposal.",
    "Show the MaxText command line.",
    "How do I configure this in Megatron?",
    "Write the config file for this mesh.",
    "How do I apply proposal 1 in my code?",
)
def launch(ctx: AnswerContext, given: Launch) -> Answer:
    """Flags and files that would launch a proposal with MaxText, plain JAX, AXLearn or Megatron-LM, as text to copy."""
    named = sorted(proposals_named(ctx.message)) or [int(n) for n in _FOR.findall(ctx.message)]
    number = given.proposal or next((n for n in named if n <= len(ctx.bench.proposals)), which(ctx, given))
    target = {"number": number}
    every = yield from get(ctx, LaunchTools.launch_files, **target)
    if not every.may_run:
        yield from ctx.say("It is not legal:", *(item.reason for item in every.violations))
    kind = _kind(ctx, given.tool, [item.kind for item in every.files])
    file = (yield from get(ctx, LaunchTools.launch_files, **target, kind=kind)).files[0]
    body = f"; nothing is started:\n\n```\n{file.text.strip()}\n```" if file.text else " cannot be written:"
    yield from ctx.say(f"`{file.name}` of proposal {number}{body}")
    yield from ctx.bullets(list(file.notes))
    if ctx.message:
        flags = yield from get(ctx, FlagTools.flag, text=ctx.message[:600])
        if flags.flags:
            yield from explain_flags(ctx, flags)
    rest = [f"`{item.name}`" for item in every.files if item.name != file.name]
    if rest:
        yield from ctx.say(f"Also available on the proposal's page: {listed(rest)}.")


#: How a message names a proposal beside a tool: `megatron arguments for 3`.
_FOR = re.compile(r"\b(?:for|of)\s+(?:the\s+)?#?(\d)\b(?!\s?(?:chips|gpus|tokens|%))", re.IGNORECASE)
_TOOLS = {
    "megatron": r"megatron|mcore|nemo", "maxtext": r"maxtext|ici_\w+_parallelism", "axlearn": r"axlearn",
    "jax": r"\bjax\b|namedsharding", "yaml": r"\byaml\b|config file",
}  # fmt: skip


def _kind(ctx: AnswerContext, tool: str, kinds: Sequence[str]) -> str:
    """The file of the tool that is named, in the form or in the message, else of the program that ran."""
    wanted = tool.lower() or next((k for k, p in _TOOLS.items() if re.search(p, ctx.message, re.IGNORECASE)), "")
    ran = (framework_of(ctx.bench.config) or "").lower()
    wanted = wanted or next((kind for kind in ("megatron", "axlearn", "maxtext") if kind in ran), "")
    return next((kind for kind in kinds if wanted and kind.startswith(wanted)), kinds[0])


class Outcome(About):
    step_time_s: Annotated[float | None, Field(gt=0, le=1e6, description="Measured step time in seconds.")] = None


@capability(
    "Measured vs. predicted",
    "I measured proposal 1 and got a different step time.",
    "We ran it and the step took longer than predicted.",
    "The trial came out slower, what now?",
    "How do I report the measured result?",
)
def result(ctx: AnswerContext, given: Outcome) -> Answer:
    """Compares a measured step time with the prediction, and explains how to record it."""
    number = which(ctx, given)
    row = yield from whole(ctx, number)
    got, time = given.step_time_s, row.step_time_s
    if got and time:
        where = "above" if got > time.high80 else "below" if got < time.low80 else "within"
        yield from ctx.say(
            f"{limit(got, 's', 6)} per step, as you state, lies **{where}** the 80 % interval of proposal {number}: "
            f"{words.step(row)} was predicted."
        )
    yield from ctx.say(
        f"It counts once the profile of that run is uploaded on the card of proposal {number}; the confidence of "
        "further proposals is then recalibrated."
    )
