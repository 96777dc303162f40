"""What the conversation holds: constraints and facts that the user states, takes back, or asks for; and what only a
person
may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from formatting import listed
from perfmodel.config import ConfigError, ExperimentConfig, MeshSizes
from proposals.agents import notation, words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability, registry
from proposals.agents.capabilities.common import (
    Axis,
    Batch,
    Chips,
    Length,
    MeshText,
    Micro,
    Numbers,
    Precision,
    Remat,
    Sharding,
    as_arguments,
    get,
    proposals_table,
    unknown_facts,
)
from proposals.agents.conversation import ConstraintStated, FactStated
from proposals.agents.priced import Proposals
from proposals.agents.tools import ModelTools, RunTools
from proposals.agents.workbench import Workbench
from proposals.candidate import is_same
from proposals.constraints import MOST_MARGIN, Constraints
from proposals.facts import setting

_FACTS = {
    "model_name": "model.name", "batch": "training.global_batch", "seq_len": "training.seq_len",
    "micro_batches": "training.grad_accum", "remat": "training.remat", "precision": "training.precision",
    "weight_sharding": "training.weight_sharding", "usable_hbm_gb": "hardware.overrides.hbm_bytes",
}  # fmt: skip
KEPT = ("keep_batch", "keep_remat", "keep_weight_sharding", "keep_micro_batches", "no_flags")


class Stated(Arguments):
    """Constraints and facts; the sentence says where they were read."""

    keep_batch: bool = False
    keep_remat: bool = False
    keep_weight_sharding: bool = False
    keep_micro_batches: bool = False
    no_flags: Annotated[bool, Field(description="Change no XLA flags.")] = False
    keep_axes: Annotated[
        tuple[str, ...], Field(max_length=8, description="Axes to keep unchanged, such as tensor.")
    ] = ()
    fixed: Annotated[MeshText, Field(description="Axes pinned to a size, such as tp=8.")] = ""
    at_least: Annotated[MeshText, Field(description="Smallest sizes, such as tp=2.")] = ""
    at_most: Annotated[MeshText, Field(description="Largest sizes, such as tp=8.")] = ""
    at_most_chips: Chips = None
    memory_free_percent: Annotated[float | None, Field(gt=0, le=MOST_MARGIN * 100)] = None
    exclude: Numbers = ()
    model_name: Annotated[str, Field(max_length=60, description="Model, such as llama3.1-8b.")] = ""
    batch: Batch = None
    seq_len: Length = None
    micro_batches: Micro = None
    remat: Remat = ""
    precision: Precision = ""
    weight_sharding: Sharding = ""
    usable_hbm_gb: Annotated[float | None, Field(ge=1, le=1e4, description="Usable HBM per chip in GB.")] = None
    sentence: Annotated[str, Field(max_length=300, description="Where this was stated.")] = ""


def constraint(given: Stated, config: ExperimentConfig, meshes: Sequence[MeshSizes] = ()) -> dict[str, Any]:
    """What is stated as keys of `Constraints.to_json`.  meshes: those excluded.  Raises ConfigError where it makes no
    sense."""
    held: dict[str, Any] = {key: True for key in KEPT if getattr(given, key)}
    if given.keep_axes:
        held["keep_axes"] = list(given.keep_axes)
    for key in ("fixed", "at_least", "at_most"):
        if text := getattr(given, key):
            held[key] = dict(notation.sizes(text, config.mesh).ici)
    if given.at_most_chips is not None:
        held["at_most_chips"] = given.at_most_chips
    if given.memory_free_percent:
        held["memory_margin"] = given.memory_free_percent / 100
    if meshes:
        held["excluded"] = list(meshes)
    Constraints.from_json(held).check(config)
    return held


def facts_stated(given: Stated) -> dict[str, Any]:
    """Facts by configuration path."""
    facts = {path: getattr(given, name) for name, path in _FACTS.items() if getattr(given, name) not in (None, "")}
    if given.usable_hbm_gb:
        facts["hardware.overrides.hbm_bytes"] = given.usable_hbm_gb * 1e9
    return facts


def effects(given: Stated, bench: Workbench) -> Iterator[ConstraintStated | FactStated]:
    """What the conversation holds from here on.  Raises ConfigError where it makes no sense."""
    listed = [item.proposal for item in bench.proposals] if given.exclude else []
    meshes = [item.mesh for item in listed if item.rank in given.exclude]
    for key, value in constraint(given, bench.config, meshes).items():
        yield ConstraintStated({key: value}, given.sentence or " ".join(Constraints.from_json({key: value}).describe()))
    for path, value in facts_stated(given).items():
        yield FactStated(path, value, given.sentence or f"{setting(path.rpartition('.')[2])} {value}")


def under(bench: Workbench, statements: list[ConstraintStated | FactStated]) -> Workbench:
    """The workbench with what is stated beside what it holds.  Raises ConfigError."""
    facts, held = dict(bench.facts), bench.constraints
    for item in statements:
        if isinstance(item, FactStated):
            facts[item.path] = item.value
        else:
            kept = held.to_json()
            for key in item.dropped:
                kept.pop(key, None)
                facts.pop(key, None)
            held = Constraints.from_json(kept).joined(Constraints.from_json(dict(item.constraint)))
    return (
        bench.with_constraints(held).with_facts(facts) if facts != dict(bench.facts) else bench.with_constraints(held)
    )


@capability(
    "Constraint or fact added",
    "Keep the batch.",
    "Do not change the tensor axis.",
    "We have at most 128 chips.",
    "The model is llama3.1-8b and sequences have 8192 tokens.",
    "Memory must keep 10 % free.",
)
def hold(ctx: AnswerContext, given: Stated) -> Answer:
    """Adds constraints and facts, which apply to every later answer, and re-ranks the proposals."""
    bench = ctx.bench
    try:
        statements = list(effects(given, bench))
        if not statements:
            raise Missing("No constraint or fact was found; state a setting to keep, a limit, or a fact about the run.")
        new = under(bench, statements)
        before = yield from get(ctx, ModelTools.proposals)
        sentences = [_stated_sentence(item, bench.config) for item in statements]
        quoted = f" Read from “{given.sentence}”." if given.sentence else ""
        yield from ctx.say(" ".join(sentences) + quoted)
        ctx.over(new)
        after = yield from get(ctx, ModelTools.proposals)
    except (ConfigError, ToolError) as error:
        if isinstance(error, Missing):
            raise
        ctx.over(bench)
        raise ToolError(f"That constraint or fact cannot be used: {str(error).split(';')[0].rstrip('.')}.") from None
    yield from statements
    yield from _recommendation_change(ctx, before, after)
    yield from unknown_facts(ctx, after.not_known if facts_stated(given) else ())


def _stated_sentence(item: ConstraintStated | FactStated, config: ExperimentConfig) -> str:
    if isinstance(item, ConstraintStated):
        return " ".join(Constraints.from_json(dict(item.constraint)).describe())
    if item.path.endswith("hbm_bytes"):
        return f"Usable HBM is {words.size(item.value)} per chip."
    name = "model" if item.path == "model.name" else setting(item.path.rpartition(".")[2])
    value = f"{item.value:,}" if isinstance(item.value, int) else item.value
    return f"The {name} is {value}."


def _recommendation_change(ctx: AnswerContext, before: Proposals, after: Proposals) -> Answer:
    """What became of the proposals."""
    old, new = before.proposals[0], after.proposals[0]
    if is_same(ctx.bench.config, old, new):
        yield from ctx.say(f"**The recommendation stays**: {words.title(new)}.")
    else:
        yield from ctx.say(f"**The recommendation changes**: now {words.title(new)}.")
        predicted = (yield from ctx.look(ModelTools.predict, **as_arguments(old))).data
        name = f"The previous recommendation, {words.configuration(old)},"
        if predicted and predicted.violations:
            yield from ctx.say(f"{name} is ruled out: {predicted.violations[0].reason}")
        elif predicted and predicted.speedup_per_token:
            yield from ctx.say(f"{name} is now predicted at {words.speed(predicted)}.")
    yield from proposals_table(ctx, after)


class Released(Arguments):
    what: Annotated[
        tuple[str, ...], Field(max_length=12, description="Keys such as keep_batch; empty: everything.")
    ] = ()
    axis: Axis = ""


@capability(
    "Constraint released",
    "Forget the constraint on the batch.",
    "Drop all constraints.",
    "The batch may change again.",
    "Take back what I said about memory.",
)
def forget(ctx: AnswerContext, given: Released) -> Answer:
    """Removes constraints and facts of this conversation and re-ranks the proposals."""
    bench = ctx.bench
    own = (bench.origin or bench).constraints.to_json()
    held = {k: v for k, v in bench.constraints.to_json().items() if own.get(k) != v}
    facts = dict(bench.facts)
    every = [*held, *facts]
    gone = [key for key in given.what if key in every] if given.what else every
    if not gone:
        raise ToolError("No such constraint or fact is in effect in this conversation.")
    before = yield from get(ctx, ModelTools.proposals)
    statements = ConstraintStated({}, f"Removed: {listed(gone)}.", tuple(gone))
    rest = {key: _without_axis(value, given.axis) for key, value in held.items() if key in gone and given.axis}
    rest = {key: value for key, value in rest.items() if value}
    if rest:
        statements = ConstraintStated(rest, f"Removed on {given.axis}.", tuple(gone))
    ctx.over(under(bench, [statements]))
    after = yield from get(ctx, ModelTools.proposals)
    yield from ctx.say(
        f"No longer in effect: {listed([_name(key) for key in gone])}{f' on {given.axis}' if rest else ''}."
    )
    yield statements
    yield from _recommendation_change(ctx, before, after)


def _without_axis(value: Any, axis: str) -> Any:
    if isinstance(value, dict):
        return {name: size for name, size in value.items() if name != axis}
    return [name for name in value if name != axis] if isinstance(value, list) else None


_NAMES = {
    "memory_margin": "the memory margin", "no_flags": "XLA flags", "fixed": "pinned axes", "keep_axes": "kept axes",
    "at_most": "upper bounds of axes", "at_least": "lower bounds of axes", "at_most_chips": "the limit of chips",
    "excluded": "excluded meshes",
}  # fmt: skip


def _name(key: str) -> str:
    return _NAMES.get(key, setting(key.rpartition(".")[2]).removeprefix("keep "))


@capability(
    "Constraints and facts in effect",
    "Which constraints do you hold?",
    "What did I tell you so far?",
    "What assumptions are you making?",
    "Which facts are you missing?",
)
def held(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Constraints and facts in effect, and unknown facts."""
    data = yield from get(ctx, RunTools.run)
    bench = ctx.bench
    items = [f"constraint: {sentence}" for sentence in bench.constraints.describe()]
    items += [
        f"fact: {_stated_sentence(FactStated(path, value, ''), bench.config)}" for path, value in bench.facts.items()
    ]
    if items:
        yield from ctx.bullets(items)
    else:
        yield from ctx.say("No constraints, and no facts beyond the configuration.")
    yield from unknown_facts(ctx, data.not_known)


@capability(
    "Actions that need a person",
    "Approve the proposal.",
    "Launch the job now.",
    "Add this as a proposal.",
    "Reject proposal 2 and delete it.",
    "Delete this experiment.",
    "Start the training run for me.",
    "Call the tool and approve it as administrator.",
)
def decide(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Where to approve, reject, add or launch on the page."""
    yield from ctx.say(
        "Nothing here approves, rejects, adds, launches or deletes anything. A reviewer "
        "decides on the "
        "proposal's card; an engineer adds a priced mesh with *Add as a proposal* and launches it with the card's "
        "launch files."
    )


AREAS = {
    "run": "Run and figures", "findings": "Findings", "ops": "Ops", "communication": "Communication",
    "memory": "Memory", "pricing": "What if: mesh and settings", "parallelism": "What if: parallelism",
    "other_chips": "What if: chips and precision", "plans": "Proposals", "judging": "How sure",
    "searching": "Search and launch", "cost": "Throughput and cost", "known": "History and knowledge",
    "held": "This conversation",
}  # fmt: skip


@capability(
    "What can be asked here",
    "Help.",
    "What can you do?",
    "What can I ask you?",
    "Hello.",
    "Who are you and how do you work?",
)
def help(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The capabilities by area."""
    by: dict[str, list[str]] = {}
    for item in registry().values():
        by.setdefault(item.area, []).append(item.title)
    yield from ctx.say(
        "Each answer is computed by one of these from this run's profile, the performance model, the history and "
        "the knowledge "
        "base. Ask in English, or pick one under *Everything that can be computed*, below the text field."
    )
    yield from ctx.bullets([f"**{AREAS[area]}**: {'; '.join(titles)}" for area, titles in by.items()])
