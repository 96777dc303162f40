"""Changes of a run: those tried beside every mesh (rematerialisation, weight sharding, micro-batches, virtual stages,
batch), and a mesh and training keys as a user gives them, read strictly.

Each is a mapping of training keys to new values; the empty one comes first.  Those that cannot be priced, because the
model, the batch or the sequence length is not known, are not tried.  Compiler flags are tried by themselves, as sets
that were measured (`history.effects`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import log2
from typing import Any

from history.moves import RECOMPUTES
from perfmodel.config import ConfigError, ExperimentConfig, Mesh, Training, product_errors
from perfmodel.config_file import TRAINING_KEYS, read_training
from perfmodel.space import divisors, program_of
from perfmodel.workload import SHARDING
from proposals.constraints import Constraints
from proposals.plan import Broken, Predicted, ProposalPlan

Change = dict[str, Any]

#: Factors by which the global batch is tried: one step either way.
BATCH_FACTORS = (0.5, 2.0)
#: Factors on the divisors of a batch shard's sequences, for meshes with fewer shards and for larger batches.
FACTORS = (1, 2, 4, 8)
#: Training keys that change together on every mesh; more of them on the best meshes (`Pricer`).
MOST_AT_FIRST = 2


def further_changes(
    config: ExperimentConfig, constraints: Constraints, most: int = MOST_AT_FIRST
) -> tuple[Change, ...]:
    """Combinations of up to a number of training keys, if all facts are known; the empty change comes first.

    Only of what the program has: schedules and shardings of its execution profile.
    """
    training = config.training
    if config.model is None or not training.global_batch or not training.seq_len:
        return ({},)
    program = program_of(config)
    remats = [training.remat, *(() if constraints.keep_remat else program.remats)]
    shardings = [training.weight_sharding, *(() if constraints.keep_weight_sharding else program.shardings)]
    splits: list[Change] = [{}, *(() if constraints.keep_micro_batches else _splits(config))]
    batches: list[Change] = [{}, *(() if constraints.keep_batch else _batches(training))]
    interleaves = program.interleaves and not constraints.keep_micro_batches
    virtual: list[Change] = [{}, *(_virtual_stages(config) if interleaves else ())]
    changes: dict[str, Change] = {}
    for remat, sharding, split, batch, stages in product(remats, shardings, splits, batches, virtual):
        change = {**batch, **split, **stages}
        if remat != training.remat:
            change["remat"] = remat
        if sharding != training.weight_sharding:
            change["weight_sharding"] = sharding
        if len(change) <= most:
            changes.setdefault(key(change), change)
    return tuple(changes.values())


def key(change: Mapping[str, Any]) -> str:
    """Two changes with the same key are the same."""
    return repr(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in change.items()))


def _splits(config: ExperimentConfig) -> Iterator[Change]:
    """Every size of a micro-batch, or number of them, that divides the sequences of a batch shard evenly: on the shards
    that ran, and on fewer ones by factors of two, up to the largest batch that is tried."""
    training = config.training
    sequences = max(1, int((training.global_batch or 0) / config.mesh.batch_shards))
    name = "micro_batch" if training.micro_batch else "grad_accum"
    sizes = {parts * factor for parts in divisors(sequences) for factor in FACTORS}
    yield from ({name: size} for size in sorted(sizes - {getattr(training, name)}))


def _virtual_stages(config: ExperimentConfig) -> Iterator[Change]:
    """Of a pipeline, virtual stages by factors of two: fewer by one, more as the layers allow, by two."""
    count = config.training.virtual_stages
    if config.mesh.size("pipeline") > 1:
        yield from ({"virtual_stages": new} for new in (count // 2, 2 * count, 4 * count) if new >= 1)


def _batches(training: Training) -> Iterator[Change]:
    for factor in BATCH_FACTORS:
        batch = (training.global_batch or 0) * factor
        if batch >= 1 and batch == int(batch):
            yield {"global_batch": int(batch)}


def doublings_of(training: Training, change: Mapping[str, Any]) -> dict[str, float]:
    """How far each training key moves, in doublings or steps of a policy; keys that stay are absent."""
    moved: dict[str, float] = {}
    for name in ("global_batch", "grad_accum", "micro_batch", "virtual_stages"):
        before, after = getattr(training, name), change.get(name)
        if after and before and after != before:
            moved[name] = log2(after / before)
    remat = change.get("remat", training.remat)
    if remat != training.remat:
        step = RECOMPUTES[remat] - RECOMPUTES[training.remat]
        moved["remat"] = float(step or (1 if remat == "offload" else -1))
    sharding = change.get("weight_sharding", training.weight_sharding)
    if sharding != training.weight_sharding:
        moved["weight_sharding"] = float(SHARDING.index(sharding) - SHARDING.index(training.weight_sharding))
    if tuple(change.get("xla_flags", training.xla_flags)) != training.xla_flags:
        moved["xla_flags"] = 1.0
    return moved


def given_changes(config: ExperimentConfig, data: Mapping[str, Any]) -> Change:
    """Training keys that differ from the current configuration.  Raises ConfigError for an unknown key or a value it
    cannot take."""
    if not isinstance(data, Mapping):
        raise ConfigError("changes", "must map training keys to their values")
    for key in data:
        if key not in TRAINING_KEYS:
            known = " ".join(TRAINING_KEYS)
            raise ConfigError(f"training.{str(key)[:40]}", f"is not a training key; known are {known}")
    training = read_training(config, data)
    given: Change = {}
    for key in data:
        value = getattr(training, key)
        if value != getattr(config.training, key):
            given[key] = list(value) if isinstance(value, tuple) else value
    return given


def split_once(config: ExperimentConfig, mesh: Mesh, change: Change) -> Change:
    """Return a change without a number of micro-batches where their size is given too, by the run or by the change.

    A size decides, so that a number beside it would be ignored.  Raises ConfigError where both contradict.
    """
    count = change.get("grad_accum")
    batch, given = (change.get(key, getattr(config.training, key)) for key in ("global_batch", "micro_batch"))
    if not count or not given or not batch:
        return change
    rest = {name: value for name, value in change.items() if name != "grad_accum"}
    size, over = divmod(batch, mesh.batch_shards * count)
    if over or not size or ("micro_batch" in change and size != given):
        raise ConfigError(
            "training.grad_accum",
            f"is {count}, but {batch} sequences on {mesh.batch_shards} batch shards in micro-batches of {given} are "
            f"{batch / mesh.batch_shards / given:g}; give one of the two so that it divides",
        )
    return rest if size == config.training.micro_batch else {**rest, "micro_batch": size}


def products(config: ExperimentConfig, mesh: Mesh) -> tuple[Broken, ...]:
    """The rule `chips`, where a mesh names another number of chips than there is."""
    return tuple(Broken("chips", f"{error}.") for error in product_errors(mesh, config.hardware))


def impossible(mesh: Mesh, change: Change, wrong: tuple[Broken, ...], missing: tuple[str, ...]) -> ProposalPlan:
    """Return what names other chips than there are: no time, no memory, only what is wrong."""
    return ProposalPlan(
        rank=0,
        kind="own",
        title="Mesh impossible on this topology",
        mesh=mesh.to_json(),
        changes=dict(change),
        predicted=Predicted(missing=missing),
        confidence=0.0,
        reasoning=tuple(f"Invalid configuration: {item.reason}" for item in wrong),
        expected_impact=(),
        trade_offs=(),
        violations=wrong,
    )
