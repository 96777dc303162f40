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
from proposals.launch.file import DEFAULT_STEPS, PROFILE_AFTER, Header, LaunchFile, NotExpressible, comment, xla_flags
from proposals.launch.placement import Placement, granules, place

#: From least to most communication (MESH_AXIS_NAMES).
AXES = ("pipeline", "data", "expert", "fsdp", "seq", "model")
NAME = "axlearn_mesh.py"
#: `none` keeps every matmul and the attention kernel's output, as Fuji's v5p policy does; everything_saveable would
#: keep norms and activation functions too.
_POLICIES = {
    "none": (
        "config_for_function(combine_remat_policies).set(\n"
        "                            policy_1=save_or_offload_flash_attention_policy(),\n"
        "                            policy_2=jax_remat_policies.dots_with_no_batch_dims_saveable,\n"
        "                        )"
    ),
    "minimal": "jax_remat_policies.dots_with_no_batch_dims_saveable",
    "full": "jax_remat_policies.nothing_saveable",
    "offload": 'jax_remat_policies.offload_dot_with_no_batch_dims("device", "pinned_host")',
}
_ATTENTION_IMPORTS = (
    "from axlearn.common.config import config_for_function",
    "from axlearn.common.flash_attention.remat import save_or_offload_flash_attention_policy",
)


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
    inner, outer, notes = _shapes(placed)
    notes.append(
        "`modifier()` applies the proposal; `run(trainer)` sets steps, output and profiler from STEPS, OUTPUT and "
        "PROFILE. Input and learner are the trainer's own."
    )
    flags = xla_flags(placed.config)
    if flags:
        notes.append(
            "Export the XLA flags of XLA_FLAGS below before the trainer starts: AXLearn sets its own otherwise."
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
    keeps_attention = training.remat == "none"
    multi = prod(outer) > 1
    shape = f"HybridMeshShape(\n    ici_mesh_shape={_call(inner)},\n    dcn_mesh_shape={_call(outer)},\n)"
    mesh = shape if multi else _call(inner)
    unit = "slice" if placed.chip.kind == "tpu" else "process of a host"
    where = f"# Inside a {unit}, and across them." if multi else f"# {prod(inner)} devices."
    utils = ["HybridMeshShape"] * multi + ["combine_remat_policies"] * keeps_attention
    accumulate = placed.micro_batches > 1 and placed.config.mesh.size("pipeline") == 1
    lines = [
        comment([*header.lines("AXLearn", "axlearn/common/utils.py and experiments/text/gpt/common.py"), *notes]),
        "import os",
        "",
        "from jax.ad_checkpoint import checkpoint_policies as jax_remat_policies",
        "",
        "from axlearn.common.base_layer import RematSpec",
        *(_ATTENTION_IMPORTS if keeps_attention else []),
        "from axlearn.common.trainer_config_modifier import (",
        "    ChainConfigModifier,",
        *(["    GradientAccumulationModifier,"] if accumulate else []),
        "    MeshShapeModifier,",
        "    RematSpecModifier,",
        ")",
        *([f"from axlearn.common.utils import {', '.join(utils)}"] if utils else []),
        "from axlearn.experiments.text.gpt.common import mesh_shape_from_axes",
        "",
        where,
        f"MESH_SHAPE = {mesh}",
        f"TRAIN_BATCH_SIZE = {training.global_batch}  # trainer_kwargs: train_batch_size, in sequences",
        f"MAX_SEQUENCE_LENGTH = {training.seq_len}  # trainer_kwargs: max_sequence_length",
        f"XLA_FLAGS = {list(flags)!r}",
        "",
        "",
        "def modifier():",
        '    """Sets mesh, rematerialisation and accumulation on an SpmdTrainer.Config."""',
        "    return ChainConfigModifier.default_config().set(",
        "        config_modifiers=[",
        "            MeshShapeModifier.default_config().set(mesh_shape=MESH_SHAPE),",
        "            RematSpecModifier.default_config().set(",
        "                remat_policies={",
        '                    "model.decoder.transformer.layer": RematSpec(',
        f"                        prevent_cse=False, policy={_POLICIES[training.remat]}",
        "                    ),",
        "                }",
        "            ),",
        *(
            [f"            GradientAccumulationModifier.default_config().set(grad_acc_steps={placed.micro_batches}),"]
            if accumulate
            else []
        ),
        "        ]",
        "    )",
        "",
        "",
        "def run(trainer):",
        '    """Steps, output and profiler on an SpmdTrainer.Config; its input stays as the trainer has it."""',
        f'    trainer.max_step = int(os.environ.get("STEPS", "{DEFAULT_STEPS}"))',
        '    trainer.dir = os.environ.get("OUTPUT", "output")',
        '    if os.environ.get("PROFILE", "1"):',
        f'        trainer.start_trace_steps = [int(os.environ.get("PROFILE_AFTER", "{PROFILE_AFTER}"))]  # three each',
        "    return trainer",
    ]
    return LaunchFile(NAME, "axlearn", "\n".join(lines) + "\n", tuple(notes))


def _call(sizes: tuple[int, ...]) -> str:
    given = [f"{axis}={size}" for axis, size in zip(AXES, sizes, strict=True) if size > 1]
    return f"mesh_shape_from_axes({', '.join(given) or 'data=1'})"


def _axis(role: str, across_slices: bool, placed: Placement) -> str:
    if role in ("data", "fsdp"):
        return "fsdp" if placed.shards_weights and (role == "fsdp" or not across_slices) else "data"
    return "data" if role == "replica" else role


def _shapes(placed: Placement) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """Sizes inside and across slices (on GPUs: hosts) by AXLearn's axes, and what must be said about them."""
    mesh, notes = placed.mesh, list(placed.notes)
    inner, outer = dict.fromkeys(AXES, 1), dict.fromkeys(AXES, 1)
    for axis, size in mesh.dcn:
        outer[_axis(mesh.role(axis), True, placed)] *= size
    if placed.chip.kind == "gpu":
        across, inside = granules(placed.config, placed.chip.chips_per_host)
        for (axis, _), out, within in zip(mesh.ici, across, inside, strict=True):
            outer[_axis(mesh.role(axis), False, placed)] *= out
            inner[_axis(mesh.role(axis), False, placed)] *= within
        if prod(outer.values()) > 1:
            notes.append(f"Run one process per host of {placed.chip.chips_per_host} GPUs: AXLearn counts processes.")
    else:
        for axis, size in mesh.ici:
            inner[_axis(mesh.role(axis), False, placed)] *= size
    order = [_axis(mesh.role(axis), False, placed) for axis, size in mesh.ici if size > 1]
    if order != sorted(order, key=AXES.index):
        notes.append(
            f"AXLearn's language models order their axes {', '.join(AXES)}, the proposal {', '.join(order)}: axes "
            "may map to different links than predicted."
        )
    if not placed.shards_weights:
        shard = [axis for axis, size in (*mesh.ici, *mesh.dcn) if size > 1 and mesh.role(axis) in ("seq", "expert")]
        if shard:
            notes.append(f"AXLearn's language models shard weights over {', '.join(dict.fromkeys(shard))} as well.")
        if placed.config.training.weight_sharding == "zero1":
            notes.append("AXLearn has no optimizer sharding without weight sharding: the optimizer is replicated too.")
    return tuple(inner[axis] for axis in AXES), tuple(outer[axis] for axis in AXES), notes
