"""What a change does to a run, term by term, as the performance model has it.  Knows no Django.

Both sides of a change are priced; the logarithm of the predicted speed-up per token is split among the terms of the
step in proportion to what each of them saves or costs.  Two changes in which the same terms move by as much are the
same mechanism, whatever the axes are called and however large model and cluster are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

import numpy as np
import numpy.typing as npt

from history import moves
from history.record import Record, Side
from perfmodel import legality, memory
from perfmodel.accounting import parameters
from perfmodel.catalogue import UnknownModelError, architecture, get_model, read_model
from perfmodel.chips import Chip, load_chips
from perfmodel.config import (
    REMAT_OPEN,
    ExperimentConfig,
    Hardware,
    Mesh,
    ModelShape,
    Training,
    framework_of,
    product_errors,
)
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.execution import profile_named
from perfmodel.legality import MemoryPosterior
from perfmodel.step_time import combine
from perfmodel.terms import Terms, step_terms
from perfmodel.workload import Workload, chip_of, from_config, stack

Floats = npt.NDArray[np.float64]

#: Terms of a step, with the parts of `perfmodel.step_time.Priced` that make each of them up; of compute what a part of
#: the model takes, and waits for kernel launches.
TERMS: Mapping[str, tuple[str, ...]] = {
    "matmul": (),
    "expert matmul": (),
    "attention": (),
    "kernel launches": (),
    "HBM traffic": ("hbm",),
    "gradient and weight communication": ("ici:weights", "ici:expert_weights", "ici:replica"),
    "tensor-parallel communication": ("ici:model",),
    "context-parallel communication": ("ici:seq",),
    "expert communication": ("ici:expert",),
    "transfers between stages": ("ici:pipeline",),
    "communication between slices": ("dcn",),
    "pipeline bubble": ("bubble",),
    "overhead": ("overhead",),
}
#: Counts of parameters differ a little by what is counted.
SAME_SIZE = 0.05


@dataclass(frozen=True)
class TermEffects:
    """terms: log of the speed-up per token by TERMS, adding up to the predicted one; shares: of each term in the step
    before.  memory: parameters, optimizer,
    gradients and activations after the change, in shares of what a program can fill; memory_before: the same before it.
    fits: probability that it does not run out of memory after the change."""

    terms: Floats
    shares: Floats
    memory: Floats
    memory_before: Floats
    fits: float

    @property
    def gain(self) -> float:
        """Predicted logarithm of the speed-up per token."""
        return float(self.terms.sum())

    @property
    def fill(self) -> float:
        """Share of the memory that is used after the change; above 1 it does not fit."""
        return float(self.memory.sum())


def price(
    pairs: Sequence[tuple[ExperimentConfig, ExperimentConfig]], table: EfficiencyTable | None = None
) -> list[TermEffects | None]:
    """The mechanism of every change (before, after); None where a side cannot be priced.

    table: default the shipped efficiencies.
    """
    works = {id(config): _workload(config) for pair in pairs for config in pair}
    held = [config for config in {id(c): c for pair in pairs for c in pair}.values() if works[id(config)] is not None]
    place = {id(config): number for number, config in enumerate(held)}
    if not held:
        return [None] * len(pairs)
    # What an import states may be beyond any number; then no price is finite.
    with np.errstate(all="ignore"):
        work = stack([workload for workload in works.values() if workload is not None])
        terms = step_terms(work)
        efficiencies = Efficiencies.stack([_efficiencies(config, table or load_efficiencies()) for config in held])
        parts = combine(terms, efficiencies).parts_s
        columns = {name: sum((parts[part] for part in of), np.zeros(len(held))) for name, of in TERMS.items()}
        columns |= _of_compute(terms, efficiencies, parts["compute"])
        seconds = np.column_stack([np.broadcast_to(column, (len(held),)) for column in columns.values()])
        seconds = seconds / np.broadcast_to(terms.tokens_per_chip, (len(held),))[:, None]
        used = memory.per_chip(work)
        shares = [used.params, used.optimizer, used.gradients, used.activations]
        filled = np.column_stack([np.broadcast_to(part / used.capacity, (len(held),)) for part in shares])
        fits = np.broadcast_to(MemoryPosterior().probability_fits(used), (len(held),))
        mechanisms: list[TermEffects | None] = []
        for before, after in pairs:
            if id(before) not in place or id(after) not in place:
                mechanisms.append(None)
                continue
            i, j = place[id(before)], place[id(after)]
            split, shares = _split(seconds[i], seconds[j]), seconds[i] / seconds[i].sum()
            mechanisms.append(TermEffects(split, shares, filled[j], filled[i], float(fits[j])))
    return mechanisms


def _of_compute(terms: Terms, efficiencies: Efficiencies, whole: Floats) -> dict[str, Floats]:
    """Seconds of compute by what they go to: what it would take less without each of them."""
    quick = efficiencies.with_(layer_s=0.0, moe_layer_s=0.0)

    def left(**gone: float) -> Floats:
        zeros: dict[str, Any] = {name: value * np.zeros(1) for name, value in gone.items()}
        return combine(replace(terms, **zeros), quick).parts_s["compute"]

    working = left()
    attention = working - left(scores_s=0.0, scores_forward_s=0.0)
    experts = working - left(experts_s=0.0, experts_forward_s=0.0)
    return {
        "matmul": working - attention - experts,
        "expert matmul": experts,
        "attention": attention,
        "kernel launches": whole - working,
    }


def _split(before: Floats, after: Floats) -> Floats:
    """log(sum(before) / sum(after)) by term: differences over the logarithmic mean of both sums."""
    one, other = before.sum(), after.sum()
    mean = one if isclose(one, other, rel_tol=1e-9) else (one - other) / np.log(one / other)
    split: Floats = (before - after) / mean
    return split


def _efficiencies(config: ExperimentConfig, table: EfficiencyTable) -> Efficiencies:
    """Of a configuration, without its own range."""
    chip = chip_of(config.hardware)
    profile = profile_named(framework_of(config), chip.kind)
    model = config.model
    family = architecture(model) if model is not None else ""
    key = (id(table), chip.name, config.training.precision, profile.name, family)
    if key not in _RESOLVED or _RESOLVED[key][0] is not table:
        _RESOLVED[key] = (table, table.resolve(chip, config.training.precision, model, profile))
    return _RESOLVED[key][1]


_RESOLVED: dict[tuple[int, str, str, str, str], tuple[EfficiencyTable, Efficiencies]] = {}


def sides(record: Record) -> tuple[ExperimentConfig, ExperimentConfig] | None:
    """Both sides of a record as configurations; None where it does not name model, mesh, batch or sequence length, or
    what it names does not go together."""
    shape = shape_of(record)
    chip = load_chips().get(record.chip)
    if shape is None or chip is None or not record.chips or record.chips % record.slices:
        return None
    topology = record.topology or _topology(chip, record.chips // record.slices)
    hardware = Hardware(record.chip, tuple(topology), record.slices)
    configurations = [
        _configuration(hardware, shape, side, {**record.before.training, **_stated_training(side)})
        for side in (record.before, record.after)
    ]
    return None if None in configurations else (configurations[0], configurations[1])  # type: ignore[return-value]


def _stated_training(side: Side) -> dict[str, object]:
    return {key: value for key, value in side.training.items() if value is not None}


def shape_of(record: Record) -> ModelShape | None:
    """The model that a record spells out, or that the catalogue has under its name and that is as large."""
    if record.shape:
        try:
            return read_model(dict(record.shape))
        except ValueError:
            return None
    try:
        shape = get_model(record.model_name) if record.model_name else None
    except UnknownModelError:
        return None
    if shape is None or not record.parameters:
        return shape
    return shape if abs(parameters(shape).total / record.parameters - 1.0) < SAME_SIZE else None


def _topology(chip: Chip, chips: int) -> tuple[int, ...]:
    """GPUs by NVLink domain; chips of a TPU slice in a row where the record does not say."""
    if chip.kind == "tpu":
        return (chips,)
    domain = min(chip.nvlink_domain, chips)
    return (domain, max(1, chips // domain))


def _configuration(
    hardware: Hardware, shape: ModelShape, side: Side, training: Mapping[str, object]
) -> ExperimentConfig | None:
    batch, length = (moves.number(training.get(key)) for key in ("global_batch", "seq_len"))
    if side.mesh is None or not batch or not length:
        return None
    accumulated, micro = (moves.number(training.get(key)) for key in ("grad_accum", "micro_batch"))
    gpu = load_chips()[hardware.chip].kind == "gpu"
    failure_text: dict[str, Any] = {
        key: str(training[key]) for key in ("precision", "weight_sharding", "remat", "optimizer") if key in training
    }
    failure_text.setdefault("remat", "none" if gpu else "full")
    mesh = Mesh(
        tuple((side.mesh.get("ici") or {}).items()), tuple((side.mesh.get("dcn") or {}).items()), dict(side.axis_roles)
    )
    config = ExperimentConfig(
        hardware,
        mesh,
        shape,
        Training(
            global_batch=round(batch),
            seq_len=round(length),
            grad_accum=max(1, round(accumulated or 1)),
            micro_batch=round(micro) if micro else None,
            virtual_stages=max(1, round(moves.number(training.get("virtual_stages")) or 1)),
            **failure_text,
        ),
        extra={
            **({"software_framework": str(training["software"])} if training.get("software") else {}),
            **({REMAT_OPEN: True} if "remat" not in training else {}),
        },
    )
    return config if can_be_priced(config) else None


def can_be_priced(config: ExperimentConfig) -> bool:
    """Whether model, batch and length are known and the mesh names every chip once."""
    if config.model is None or not config.training.global_batch or not config.training.seq_len:
        return False
    return not product_errors(config.mesh, config.hardware)


def _workload(config: ExperimentConfig) -> Workload | None:
    """None where what an import states is no configuration."""
    try:
        return from_config(config)
    except (ValueError, KeyError, ArithmeticError):
        return None


def applied(config: ExperimentConfig, move: Mapping[str, float], after: Mapping[str, str]) -> ExperimentConfig | None:
    """The configuration after the same move: axes, batch and micro-batch by as many doublings, policies as they became.

    move: by `moves.ROLES` and `moves.KEYS`; after: policies by `moves.SETTINGS`.  None where the run cannot move so, or
    sizes do not divide.
    """
    mesh = _moved(config.mesh, {role: move[role] for role in moves.ROLES if move.get(role)})
    if mesh is None or config.model is None:
        return None
    policies: dict[str, Any] = {key: after[key] for key in moves.SETTINGS if move.get(key) and key in after}
    training = replace(config.training, **policies)
    batch = (training.global_batch or 0) * 2.0 ** move.get("global_batch", 0.0)
    each = _micro_batch(config) * 2.0 ** move.get("micro_batch", 0.0)
    count = batch / (each * mesh.batch_shards) if each else 0.0
    if not all(value >= 1 and isclose(value, round(value)) for value in (batch, count)):
        return None
    if training.micro_batch:
        if not isclose(each, round(each)) or each < 1:
            return None
        training = replace(training, micro_batch=round(each))
    moved_config = replace(
        config, mesh=mesh, measured=None,
        training=replace(training, global_batch=round(batch), grad_accum=round(count)),
    )  # fmt: skip
    return None if any(legality.indivisible(moved_config).values()) else moved_config


def _micro_batch(config: ExperimentConfig) -> float:
    """Sequences per batch shard that are worked on at once."""
    if config.training.micro_batch:
        return float(config.training.micro_batch)
    shards = config.mesh.batch_shards
    return (config.training.global_batch or 0) / (shards * config.training.grad_accum)


def _moved(mesh: Mesh, by: Mapping[str, float]) -> Mesh | None:
    """Axes inside the slice by role, each as many doublings larger; a role without an axis gets one."""
    sizes = dict(mesh.ici)
    for role, doublings in by.items():
        roles = ("data", "fsdp") if role == "data" else (role,)
        own = sorted((axis for axis in sizes if mesh.role(axis) in roles), key=lambda axis: -sizes[axis])
        if not own and doublings < 0:
            return None
        if not own:
            # Pipeline stages and data lie farthest apart, as programs lay them out.
            sizes = {role: 1, **sizes} if role in ("pipeline", "data", "replica") else {**sizes, role: 1}
            own = [role]
        size = sizes[own[0]] * 2.0**doublings
        if size < 1 or not isclose(size, round(size)):
            return None
        sizes[own[0]] = round(size)
    if not isclose(np.prod(list(sizes.values())), mesh.ici_product):
        return None
    return replace(mesh, ici=tuple(sizes.items()))
