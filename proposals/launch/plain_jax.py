"""Plain JAX: a Python file with the mesh, the PartitionSpecs and the flags, that checks itself without the chips.

Sources: jax.experimental.mesh_utils (create_device_mesh, create_hybrid_device_mesh, allow_split_physical_axes),
jax.sharding (NamedSharding.shard_shape, AbstractMesh), jax.checkpoint_policies; scaling book 5.1 for the scheme.
"""

from __future__ import annotations

from math import prod

from perfmodel.config import ExperimentConfig
from proposals.launch.file import (
    Header,
    LaunchFile,
    NotExpressible,
    comment,
    flags_variable,
    literal,
    render,
    xla_flags,
)
from proposals.launch.placement import Placement, must_split, place
from reference_step.sharded_arrays import GROUPS, Array, activation_arrays, far_names, fit, groups, weight_arrays

#: What a policy names, by policy: the program has to name it likewise.
_NAMED = {"none": ("context", "the attention output"), "offload": ("layer_input", "the input of a layer")}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
NAME = "plain_jax.py"


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """The Python file; `python plain_jax.py --check` runs it on forced CPU devices."""
    try:
        placed = place(config)
    except NotExpressible as reason:
        return LaunchFile(NAME, "jax", "", (str(reason),))
    notes = list(placed.notes)
    far = far_names(placed.mesh)
    axes = groups(placed.mesh, config.training, far)
    arrays, uneven = _arrays(placed, far, axes)
    split = _split(placed, far)
    if split:
        notes.append("An axis covers only part of a torus dimension, so the mesh needs allow_split_physical_axes.")
    if placed.chip.kind == "tpu" and sum(size > 1 for _, size in placed.mesh.ici) > 1:
        notes.append(
            "create_device_mesh chooses the torus dimensions of each axis by itself; the prediction mapped the axes "
            "to them in the order given."
        )
    if uneven:
        notes.append(f"Sharded less than the mesh allows, because a size is not divisible: {', '.join(uneven)}.")
    notes += _missing(placed)
    training = config.training
    text = render(
        NAME, docstring=_docstring(header, notes), xla_flags=xla_flags(config), devices=placed.devices, split=split,
        variable=flags_variable(placed.chip.kind), training=training,
        across={far[axis]: size for axis, size in placed.mesh.dcn if axis in far}, inside=dict(placed.mesh.ici),
        micro_batches=placed.micro_batches, dtype=_DTYPES.get(training.precision, "bfloat16"),
        named=_NAMED.get(training.remat, ("",))[0], groups={name: axes[name] for name in GROUPS}, arrays=arrays,
    )  # fmt: skip
    return LaunchFile(NAME, "jax", text, tuple(notes))


def _docstring(header: Header, notes: list[str]) -> str:
    lines = comment([*header.lines("Plain JAX", "jax.experimental.mesh_utils"), *notes]).splitlines()
    plain = "\n".join(line.removeprefix("#").strip() for line in lines)
    return plain.replace("\\", "/").replace('"""', "'''")


def _missing(placed: Placement) -> list[str]:
    """What the file cannot say."""
    training, missing = placed.config.training, []
    if placed.config.model is None:
        missing.append("The model is not known: the file shards by role, without the shapes of its weights.")
    if training.global_batch is None or training.seq_len is None:
        missing.append("Batch or sequence length is not known, so no activation is checked.")
    if training.precision not in _DTYPES:
        missing.append(
            f"JAX alone has no {training.precision} training; COMPUTE_DTYPE is bfloat16, and a quantisation library "
            "such as Qwix has to replace the matmuls."
        )
    if training.remat in _NAMED:
        name, what = _NAMED[training.remat]
        missing.append(f"REMAT_POLICY needs {what} `{name}`, by jax.ad_checkpoint.checkpoint_name.")
    if placed.mesh.size("pipeline") > 1:
        missing.append(
            "The specs place layers on stages; JAX has no built-in pipeline schedule: it is part of your code."
        )
    return missing


def _split(placed: Placement, far: dict[str, str]) -> bool:
    sizes = [1] * len(far) + [size for _, size in placed.mesh.ici]
    return placed.chip.kind == "tpu" and must_split(sizes, placed.physical)


def _arrays(
    placed: Placement, far: dict[str, str], axes: dict[str, tuple[str, ...]]
) -> tuple[list[tuple[Array, str, str]], list[str]]:
    """Arrays with their sharding and that of their optimizer state, and the names of those that a size keeps whole
    somewhere."""
    config = placed.config
    sizes = {name: size for axis, size in placed.mesh.dcn for name in (far.get(axis),) if name}
    sizes |= dict(placed.mesh.ici)
    length, batch = config.training.seq_len, config.training.global_batch
    rows = placed.batch_per_micro_batch
    arrays: list[Array] = []
    if batch and length and rows:
        arrays.append(Array("tokens", "batch", (batch, length), (("BATCH",), ("SEQ",))))
    if config.model is not None:
        arrays += weight_arrays(config.model)
        if rows and length:
            gpu = placed.chip.kind == "gpu"
            arrays += activation_arrays(config.model, config.training, rows, gpu, placed.sequence_parallel)
    if not arrays:
        samples = {name: prod(sizes[axis] for axis in axes[name]) for name in GROUPS}
        arrays = [
            Array("tokens", "batch", (samples["BATCH"], samples["SEQ"]), (("BATCH",), ("SEQ",))),
            Array("weight_in", "weight", (samples["WEIGHTS"], samples["MODEL"]), (("WEIGHTS",), ("MODEL",))),
            Array("weight_out", "weight", (samples["MODEL"], samples["WEIGHTS"]), (("MODEL",), ("WEIGHTS",))),
        ]
    placed_arrays, uneven = list[tuple[Array, str, str]](), list[str]()
    for array in arrays:
        weight = array.kind == "weight"
        sharded = array if not weight or config.training.weight_sharding == "fsdp" else _unsharded(array)
        spec, whole = _spec(sharded, axes, sizes)
        state = spec
        if weight and config.training.weight_sharding == "zero1":
            state, whole = _spec(array, axes, sizes)
        placed_arrays.append((array, spec, state))
        if not whole:
            uneven.append(array.name)
    return placed_arrays, uneven


def _unsharded(array: Array) -> Array:
    """A weight that only tensor, expert and pipeline axes shard."""
    dims = tuple(tuple(g for g in names if g not in ("WEIGHTS", "EXPERT_WEIGHTS")) for names in array.dims)
    return Array(array.name, array.kind, array.shape, dims)


def _spec(array: Array, axes: dict[str, tuple[str, ...]], sizes: dict[str, int]) -> tuple[str, bool]:
    """`P(STAGE, WEIGHTS, MODEL)`, with the axes themselves where a size does not divide by all of a group."""
    kept, whole = fit(array, axes, sizes)
    parts = []
    for names, axis_names in zip(array.dims, kept, strict=True):
        wanted = tuple(axis for group in names for axis in axes[group])
        if not axis_names:
            parts.append("None")
        elif axis_names == wanted:
            parts.append(" + ".join(group for group in names if axes[group]))
        else:
            parts.append(literal(axis_names))
    return f"P({', '.join(parts)})", whole
