"""Rules a mesh must keep, each with a name.  Vectorised over candidates; `check` says it in sentences for one.

A broken rule does not stop the model from pricing the mesh; it stops the search from proposing it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formatting import compared, counted
from perfmodel import memory
from perfmodel.arrays import array_of
from perfmodel.config import CANONICAL_ROLES, ROLES, ExperimentConfig
from perfmodel.memory_stages import has_empty_stage, has_too_few_micro_batches
from perfmodel.shapes import ModelShape
from perfmodel.topology import Floats, lay_out, physical_dims
from perfmodel.workload import AxisSizes, Workload, chip_of, from_config, micro_batches

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


def broken_rules(
    sizes: AxisSizes,
    micro_batches: Floats,
    virtual_stages: Floats,
    shape: ModelShape | None,
    global_batch: npt.ArrayLike | None,
    seq_len: npt.ArrayLike | None,
) -> dict[str, Bools]:
    """Which candidates break which rule of divisibility; arrays that broadcast.

    micro_batches: per step.  global_batch: sequences; seq_len: tokens.  Rules whose facts are None are left out.
    """
    broken: dict[str, Bools] = {}
    if global_batch is not None:
        # A micro-batch that does not divide a group's share, or is larger than it, leaves a broken number of them.
        whole = np.maximum(1.0, np.rint(micro_batches))
        broken["batch"] = (np.mod(global_batch, sizes.batch_shards * whole) != 0) | (
            np.abs(micro_batches - whole) > 1e-6
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
    stages = sizes.pipeline * np.where(sizes.pipeline > 1, virtual_stages, 1.0)
    # Embedding and head may fill a slot each, so layers need not divide evenly; but no stage may be empty.
    broken["layers"] = stages > shape.layers + 2
    return broken


def first_broken(rules: Sequence[npt.ArrayLike]) -> npt.NDArray[np.int16]:
    """Of each candidate the index of the first rule that it breaks, -1 where it keeps all.

    rules: of each, which candidates break it; arrays that broadcast.
    """
    first = np.full(1, -1, dtype=np.int16)
    for number in reversed(range(len(rules))):
        first = np.where(rules[number], np.int16(number), first)
    return first


def schedule_fails(w: Workload) -> Bools:
    """Pipelines that the program of the configuration cannot run, whatever the memory (nanotron's)."""
    return has_too_few_micro_batches(w) | has_empty_stage(w)


def of_workload(w: Workload, shape: ModelShape | None, unknown: Collection[str] = ()) -> dict[str, Bools]:
    """Which candidates of a workload break which rule, whatever their memory; arrays that broadcast.

    shape: of the model, None where it is not known.  unknown: dotted names of facts that the workload holds assumed
    values of (`step_time.missing_facts`); their rules are left out.
    """
    mesh, training = w.mesh, w.training
    broken = broken_rules(
        mesh,
        training.micro_batches,
        training.virtual_stages,
        shape,
        None if "training.global_batch" in unknown else training.global_batch,
        None if "training.seq_len" in unknown else training.seq_len,
    )
    broken["topology"] = mesh.regular == 0
    if shape is not None and not unknown:
        broken["schedule"] = schedule_fails(w)
    return broken


def indivisible(config: ExperimentConfig) -> dict[str, bool]:
    """Which rules of divisibility one configuration breaks.  Rules whose facts are missing are left out."""
    training, mesh = config.training, config.mesh
    broken = broken_rules(
        AxisSizes(**{role: array_of(mesh.size(role)) for role in CANONICAL_ROLES}),
        array_of(micro_batches(training, mesh)),
        array_of(training.virtual_stages),
        config.model,
        training.global_batch,
        training.seq_len,
    )
    return {rule: bool(np.any(flags)) for rule, flags in broken.items()}


def check(
    config: ExperimentConfig, used: memory.MemoryUse | None = None, fits: bool | None = None
) -> tuple[Violation, ...]:
    """Return all broken rules of one configuration, in the order of RULES.

    used: its memory where already known; otherwise memory is judged if the configuration says enough.  fits: whether it
    fits by the evidence (`perfmodel.memory_evidence`), None to judge by the model alone.
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
    for rule, broken in indivisible(config).items():
        if broken:
            messages[rule] = _sentence(rule, config)
    if shape is not None and training.global_batch and training.seq_len:
        work = from_config(config)
        if bool(np.any(schedule_fails(work))):
            messages["schedule"] = _schedule_sentence(work)
        used = memory.per_chip(work) if used is None else used
    fits = bool(np.all(used.fits)) if fits is None and used is not None else fits
    if used is not None and fits is False:
        total, capacity = compared(float(used.total.max()), float(used.capacity.min()), "bytes")
        messages["memory"] = f"It needs {total} per chip, but only {capacity} are usable."
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
    return _sentence(rule, config) if divides else None


def _sentence(rule: str, config: ExperimentConfig) -> str:
    shape, training, mesh = config.model, config.training, config.mesh
    if rule == "batch":
        micro = training.micro_batch or 0
        if micro * mesh.batch_shards > (training.global_batch or 0):
            return (
                f"A micro-batch of {micro} sequences on each of {mesh.batch_shards} batch shards takes more than the "
                f"global batch of {training.global_batch}."
            )
        return (
            f"A global batch of {training.global_batch} sequences is not divisible by {mesh.batch_shards} "
            f"batch shards times {counted(micro_batches(training, mesh), 'micro-batch')}."
        )
    if rule == "sequence":
        return f"A sequence of {training.seq_len} tokens is not divisible by {mesh.size('seq')} sequence shards."
    assert shape is not None
    tensor, stages = mesh.size("model"), mesh.size("pipeline")
    texts: Mapping[str, str] = {
        "heads": f"{shape.heads} heads are not divisible by {tensor} tensor shards.",
        "kv_heads": f"{shape.kv_heads} KV heads are not divisible by {tensor} tensor shards.",
        "d_ff": f"The MLP width {shape.d_ff_expert or shape.d_ff} is not divisible by {tensor} tensor shards.",
        "experts": f"{shape.experts} experts are not divisible by {mesh.size('expert')} expert shards.",
        "layers": f"{shape.layers} layers do not fill {stages} stages of {training.virtual_stages} parts.",
    }
    return texts[rule]
