"""AXLearn: mesh shape, remat and accumulation as config modifiers for an SpmdTrainer.

Sources (apple/axlearn): axlearn/common/utils.py (HybridMeshShape, create_device_mesh: the unit across which the outer
mesh runs is a TPU slice, on GPUs a process), axlearn/experiments/text/gpt/common.py (MESH_AXIS_NAMES and their order,
mesh_shape_from_axes, which axes shard weights and batch), axlearn/common/trainer_config_modifier.py,
axlearn/common/base_layer.py (RematSpec), axlearn/common/trainer.py (SpmdTrainer.Config: max_step, dir,
start_trace_steps, of which each records three steps).
"""

from __future__ import annotations

from math import prod

from perfmodel.config import ExperimentConfig
from proposals.launch.file import Header, LaunchFile, NotExpressible, flags_variable, render, xla_flags
from proposals.launch.placement import Placement, ToolAxes, place, tool_axes

#: From least to most communication (MESH_AXIS_NAMES).
AXES = ("pipeline", "data", "expert", "fsdp", "seq", "model")
NAME = "axlearn_mesh.py"


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """A Python module whose `modifier()` sets the proposal on a trainer's config."""
    try:
        return _file(place(config), header)
    except NotExpressible as reason:
        return LaunchFile(NAME, "axlearn", "", (str(reason),))


def _file(placed: Placement, header: Header) -> LaunchFile:
    training = placed.config.training
    if placed.config.mesh.size("pipeline") > 1 and training.virtual_stages > 1:
        raise NotExpressible("AXLearn's pipeline has no virtual stages; give one stage per device of the axis.")
    notes = list(placed.notes)
    axes = _axes(placed, notes)
    notes.append(
        "`modifier()` applies the proposal; `run(trainer)` sets steps, output and profiler from STEPS, OUTPUT and "
        "PROFILE. Input and learner are the trainer's own."
    )
    flags = xla_flags(placed.config)
    if flags:
        notes.append(
            f"Export FLAGS below in {flags_variable(placed.chip.kind)} before the trainer starts: AXLearn sets its own "
            "otherwise."
        )
    if training.precision not in ("bf16", "fp32"):
        notes.append(f"This file does not switch AXLearn's trainer to {training.precision}; it trains in bfloat16.")
    if placed.config.mesh.size("pipeline") > 1:
        notes.append(
            "The pipeline axis also needs a PipelinedTransformerLayer with as many stages in the model's config."
        )
    for known, what in ((training.global_batch, "global batch"), (training.seq_len, "sequence length")):
        if known is None:
            notes.append(f"The {what} is unknown and keeps the trainer's default.")
    if training.remat == "offload":
        notes.append("AXLearn has no name for the input of a layer: outputs of matmuls move to the host instead.")
    text = render(
        NAME, about=[*header.lines("AXLearn", "axlearn/common/utils.py and experiments/text/gpt/common.py"), *notes],
        inner=axes.inside, outer=axes.across, is_hybrid=prod(axes.across.values()) > 1,
        devices=prod(axes.inside.values()), unit="slice" if placed.chip.kind == "tpu" else "process of a host",
        training=training, remat=training.remat, xla_flags=list(flags),
        accumulate=placed.micro_batches if placed.config.mesh.size("pipeline") == 1 else 1,
    )  # fmt: skip
    return LaunchFile(NAME, "axlearn", text, tuple(notes))


def _axes(placed: Placement, notes: list[str]) -> ToolAxes:
    """Sizes inside and across slices (on GPUs: hosts) by AXLearn's axes; notes: takes what must be said about them."""
    axes = tool_axes(placed, {axis: axis for axis in AXES}, placed.chip.chips_per_host)
    if placed.chip.kind == "gpu" and prod(axes.across.values()) > 1:
        notes.append(f"Run one process per host of {placed.chip.chips_per_host} GPUs: AXLearn counts processes.")
    if axes.order:
        notes.append(
            f"AXLearn's language models order their axes {', '.join(AXES)}, the proposal {', '.join(axes.order)}: axes "
            "may map to different links than predicted."
        )
    if axes.weights:
        notes.append(f"AXLearn's language models shard weights over {', '.join(axes.weights)} as well.")
    if placed.config.training.weight_sharding == "zero1":
        notes.append("AXLearn has no optimizer sharding without weight sharding: the optimizer is replicated too.")
    return axes
