"""Rules a mesh must keep, each with a name.  Vectorised over candidates; `check` says it in sentences for one.

A broken rule does not stop the model from pricing the mesh; it stops the search from proposing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel import memory
from perfmodel.config import ROLES, ExperimentConfig
from perfmodel.memory_stages import has_empty_stage, has_too_few_micro_batches
from perfmodel.shapes import ModelShape
from perfmodel.topology import Floats, lay_out, physical_dims
from perfmodel.workload import Workload, chip_of, from_config, micro_batches

Bools = npt.NDArray[np.bool_]

#: Rules in the order in which they are reported.
RULES = (
    "chips",
    "axis_role",
    "topology",
    "batch",
    "sequence",
    "heads",
    "kv_heads",
    "d_ff",
    "experts",
    "layers",
    "schedule",
    "memory",
)


@dataclass(frozen=True)
class Violation:
    """A broken rule: its name (one of RULES) and one sentence that says what and why."""

    rule: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True)
class Sizes:
    """Axis sizes by canonical role (ICI times DCN) and micro-batches; arrays that broadcast."""

    replica: Floats
    data: Floats
    fsdp: Floats
    seq: Floats
    model: Floats
    expert: Floats
    pipeline: Floats
    micro_batches: Floats
    virtual_stages: Floats

    @property
    def batch_shards(self) -> Floats:
        return self.replica * self.data * self.fsdp * self.expert


def broken_rules(
    sizes: Sizes, shape: ModelShape | None, global_batch: npt.ArrayLike | None, seq_len: npt.ArrayLike | None
) -> dict[str, Bools]:
    """Which candidates break which divisibility rule.  Rules whose facts are missing are left out."""
    broken: dict[str, Bools] = {}
    if global_batch is not None:
        # A micro-batch that does not divide a group's share leaves a broken number of them.
        broken["batch"] = (np.mod(global_batch, sizes.batch_shards * np.rint(sizes.micro_batches)) != 0) | (
            np.abs(sizes.micro_batches - np.rint(sizes.micro_batches)) > 1e-6
        )
    if seq_len is not None:
        broken["sequence"] = np.mod(seq_len, sizes.seq) != 0
    if shape is None:
        return broken
    broken["heads"] = np.mod(shape.heads, sizes.model) != 0
    if shape.attention != "mla":
        broken["kv_heads"] = np.mod(shape.kv_heads, sizes.model) != 0
    dense = shape.d_ff if not shape.experts or shape.first_dense_layers or shape.moe_layer_step > 1 else 0
    broken["d_ff"] = (np.mod(dense, sizes.model) != 0) | (np.mod(shape.d_ff_expert, sizes.model) != 0)
    if shape.experts:
        broken["experts"] = np.mod(shape.experts, sizes.expert) != 0
    else:
        broken["experts"] = sizes.expert > 1
    stages = sizes.pipeline * np.where(sizes.pipeline > 1, sizes.virtual_stages, 1.0)
    # Embedding and head may fill a slot each, so layers need not divide evenly; but no stage may be empty.
    broken["layers"] = stages > shape.layers + 2
    return broken


def schedule_fails(w: Workload) -> Bools:
    """Pipelines that the program of the configuration cannot run, whatever the memory (nanotron's)."""
    return has_too_few_micro_batches(w) | has_empty_stage(w)


def sizes_of(config: ExperimentConfig) -> Sizes:
    mesh = config.mesh
    values = {role: np.array([float(mesh.size(role))]) for role in Sizes.__annotations__ if role in ROLES}
    return Sizes(
        **values,
        micro_batches=np.array([micro_batches(config.training, mesh)]),
        virtual_stages=np.array([float(config.training.virtual_stages)]),
    )


def check(config: ExperimentConfig, used: memory.MemoryUse | None = None) -> tuple[Violation, ...]:
    """All broken rules of one configuration, in the order of RULES.

    used: its memory where already known; otherwise memory is judged if the configuration says enough.
    """
    hardware, mesh, shape, training = config.hardware, config.mesh, config.model, config.training
    messages: dict[str, str] = {}
    if mesh.ici_product != hardware.chips_per_slice or mesh.dcn_product != hardware.slices:
        messages["chips"] = (
            f"The mesh has {mesh.ici_product} chips in {mesh.dcn_product} slices, the hardware "
            f"{hardware.chips_per_slice} in {hardware.slices}."
        )
    unknown = [axis for axis, _ in (*mesh.ici, *mesh.dcn) if mesh.role(axis) not in ROLES]
    if unknown:
        messages["axis_role"] = f"Axis {unknown[0]!r} has no known role; name it in mesh.axis_roles."
    dims = physical_dims(chip_of(hardware), hardware.topology)
    if "chips" not in messages:
        layout = lay_out(np.array([[size for _, size in mesh.ici] or [1]], dtype=np.int64), dims)
        if not bool(layout.regular[0]):
            messages["topology"] = (
                f"{mesh.text()} does not fit evenly onto {'x'.join(map(str, hardware.topology))}: "
                "an axis would cut a dimension into unequal pieces."
            )
    sizes = sizes_of(config)
    broken = broken_rules(sizes, shape, training.global_batch, training.seq_len)
    for rule, flags in broken.items():
        if bool(np.any(flags)):
            messages[rule] = _sentence(rule, config, sizes)
    if shape is not None and training.global_batch and training.seq_len:
        work = from_config(config)
        if bool(np.any(schedule_fails(work))):
            messages["schedule"] = _schedule_sentence(work)
        used = memory.per_chip(work) if used is None else used
    if used is not None and not bool(np.all(used.fits)):
        total, capacity = float(used.total.max()), float(used.capacity.min())
        messages["memory"] = f"It needs {total / 1e9:.1f} GB per chip, but only {capacity / 1e9:.1f} GB are usable."
    return tuple(Violation(rule, messages[rule]) for rule in RULES if rule in messages)


def _schedule_sentence(w: Workload) -> str:
    stages, micro = int(w.mesh.pipeline[0]), float(w.training.micro_batches[0])
    if micro < stages - 1:
        return f"A pipeline of {stages} stages needs {stages - 1} micro-batches or more; there are {micro:g}."
    return f"The output head costs as much as three of {stages} stages, which leaves the last ones without a layer."


def sentence(rule: str, config: ExperimentConfig) -> str | None:
    """What `check` says of a configuration that breaks a rule of `broken_rules`, without checking the others; None for
    other rules."""
    divides = rule in ("batch", "sequence") or (
        config.model is not None and rule in ("heads", "kv_heads", "d_ff", "experts", "layers")
    )
    return _sentence(rule, config, sizes_of(config)) if divides else None


def _counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def _sentence(rule: str, config: ExperimentConfig, sizes: Sizes) -> str:
    shape, training = config.model, config.training
    number = {name: int(getattr(sizes, name)[0]) for name in ("seq", "model", "expert", "pipeline")}
    if rule == "batch":
        return (
            f"A global batch of {training.global_batch} sequences is not divisible by {int(sizes.batch_shards[0])} "
            f"batch shards times {_counted(float(sizes.micro_batches[0]), 'micro-batch')}."
        )
    if rule == "sequence":
        return f"A sequence of {training.seq_len} tokens is not divisible by {number['seq']} sequence shards."
    assert shape is not None
    texts: Mapping[str, str] = {
        "heads": f"{shape.heads} heads are not divisible by {number['model']} tensor shards.",
        "kv_heads": f"{shape.kv_heads} KV heads are not divisible by {number['model']} tensor shards.",
        "d_ff": f"The MLP width {shape.d_ff_expert or shape.d_ff} is not divisible by {number['model']} tensor shards.",
        "experts": f"{shape.experts} experts are not divisible by {number['expert']} expert shards.",
        "layers": f"{shape.layers} layers do not fill {number['pipeline']} stages of {training.virtual_stages} parts.",
    }
    return texts[rule]
