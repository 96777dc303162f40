"""The arrays of a transformer with how each is sharded, as plain names: what the reference step trains and a launch
file for JAX writes out.

A dimension is sharded over a *group* of mesh axes: `BATCH`, `SEQ`, `MODEL`, `EXPERT`, `STAGE`, and the axes that also
shard weights, `WEIGHTS` (`EXPERT_WEIGHTS` for routed experts).  Source of the scheme: scaling book 5.1; it is the one
the performance model prices (docs/performance-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from perfmodel.accounting import expert_width, moe_layers
from perfmodel.config import BATCH_ROLES, Mesh, ModelShape, Training

GROUPS = ("BATCH", "SEQ", "MODEL", "EXPERT", "STAGE", "WEIGHTS", "EXPERT_WEIGHTS")

Dims = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Array:
    """name, shape, and per dimension the names of the groups that shard it.  kind: weight, activation or batch."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dims: Dims


def far_names(mesh: Mesh) -> dict[str, str]:
    """Name in the device mesh of every DCN axis larger than one: of its own, so that weights need not span it."""
    taken = {axis for axis, _ in mesh.ici}
    names: dict[str, str] = {}
    for axis, size in mesh.dcn:
        if size > 1:
            name = f"dcn_{axis}"
            while name in taken:
                name = f"dcn_{name}"
            taken.add(name)
            names[axis] = name
    return names


def groups(mesh: Mesh, training: Training, dcn: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Mesh axes by group, major to minor.  dcn: name in the device mesh of every DCN axis.

    With fsdp, weights shard over the batch and sequence axes of a slice, across slices only over an axis of role fsdp.
    """
    axes = [(dcn[axis], mesh.role(axis), True) for axis, _ in mesh.dcn if axis in dcn]
    axes += [(axis, mesh.role(axis), False) for axis, _ in mesh.ici]

    def of(*roles: str) -> tuple[str, ...]:
        return tuple(name for name, role, _ in axes if role in roles)

    def weights(*roles: str) -> tuple[str, ...]:
        return tuple(name for name, role, far in axes if role in roles and (not far or role == "fsdp"))

    return {
        "BATCH": of(*BATCH_ROLES),
        "SEQ": of("seq"),
        "MODEL": of("model"),
        "EXPERT": of("expert"),
        "STAGE": of("pipeline"),
        "WEIGHTS": weights("data", "fsdp", "seq", "expert"),
        "EXPERT_WEIGHTS": weights("data", "fsdp", "seq"),
    }


def weight_arrays(shape: ModelShape) -> list[Array]:
    """Every weight of the model, layers stacked in front.  Dense and mixture layers are separate stacks."""
    d, heads, layers = shape.d_model, shape.heads, shape.layers
    arrays = [Array("embedding", "weight", (shape.vocab, d), (("MODEL",), ("WEIGHTS",)))]
    if shape.attention == "mla":
        arrays += _latent_attention(shape)
    else:
        wide, narrow = (layers, d, heads, shape.head_dim), (layers, d, shape.kv_heads, shape.head_dim)
        into: Dims = (("STAGE",), ("WEIGHTS",), ("MODEL",), ())
        arrays += [Array("wq", "weight", wide, into), Array("wk", "weight", narrow, into)]
        arrays += [Array("wv", "weight", narrow, into)]
        arrays.append(
            Array("wo", "weight", (layers, heads, shape.head_dim, d), (("STAGE",), ("MODEL",), (), ("WEIGHTS",)))
        )
    mixtures = moe_layers(shape)
    arrays += _mlp("w", layers - mixtures, d, shape.d_ff, shape.mlp)
    if mixtures:
        arrays.append(Array("router", "weight", (mixtures, d, shape.experts), (("STAGE",), ("WEIGHTS",), ())))
        arrays += _experts(shape, mixtures)
        arrays += _mlp("shared", mixtures if shape.shared_experts else 0, d, shape.shared_experts * expert_width(shape),
                      shape.mlp)  # fmt: skip
    arrays.append(Array("norms", "weight", (layers, 2, d), (("STAGE",), (), ())))
    arrays.append(Array("final_norm", "weight", (d,), ((),)))
    if not shape.tied_embeddings:
        arrays.append(Array("head", "weight", (d, shape.vocab), (("WEIGHTS",), ("MODEL",))))
    return arrays


def _latent_attention(shape: ModelShape) -> list[Array]:
    layers, d, heads = shape.layers, shape.d_model, shape.heads
    query = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    down: Dims = (("STAGE",), ("WEIGHTS",), ())
    up: Dims = (("STAGE",), ("WEIGHTS",), ("MODEL",), ())
    arrays = []
    if shape.q_lora_rank:
        arrays.append(Array("wq_down", "weight", (layers, d, shape.q_lora_rank), down))
    arrays.append(Array("wq_up", "weight", (layers, shape.q_lora_rank or d, heads, query), up))
    arrays.append(Array("wkv_down", "weight", (layers, d, shape.kv_lora_rank + shape.qk_rope_head_dim), down))
    wide = (layers, shape.kv_lora_rank, heads, shape.qk_nope_head_dim + shape.v_head_dim)
    arrays.append(Array("wkv_up", "weight", wide, up))
    out: Dims = (("STAGE",), ("MODEL",), (), ("WEIGHTS",))
    return [*arrays, Array("wo", "weight", (layers, heads, shape.v_head_dim, d), out)]


def _mlp(name: str, layers: int, d: int, width: int, kind: str) -> list[Array]:
    if not layers or not width:
        return []
    into: Dims = (("STAGE",), ("WEIGHTS",), ("MODEL",))
    names = ("gate", "up") if kind == "gated" else ("up",)
    arrays = [Array(f"{name}_{part}", "weight", (layers, d, width), into) for part in names]
    return [*arrays, Array(f"{name}_down", "weight", (layers, width, d), (("STAGE",), ("MODEL",), ("WEIGHTS",)))]


def _experts(shape: ModelShape, layers: int) -> list[Array]:
    d, width = shape.d_model, expert_width(shape)
    into: Dims = (("STAGE",), ("EXPERT",), ("EXPERT_WEIGHTS",), ("MODEL",))
    out: Dims = (("STAGE",), ("EXPERT",), ("MODEL",), ("EXPERT_WEIGHTS",))
    names = ("gate", "up") if shape.mlp == "gated" else ("up",)
    arrays = [Array(f"expert_{part}", "weight", (layers, shape.experts, d, width), into) for part in names]
    return [*arrays, Array("expert_down", "weight", (layers, shape.experts, width, d), out)]


def activation_arrays(
    shape: ModelShape, training: Training, rows: int, gpu: bool, sequence_parallel: bool
) -> list[Array]:
    """Activations of one layer and one micro-batch of `rows` sequences.

    Between layers a tensor axis shards the width on TPUs (book 5.1.3), the sequence on GPUs (Megatron's sequence
    parallelism) where the recipe does.
    """
    length = training.seq_len or 0
    if not gpu:
        between: Dims = (("BATCH",), ("SEQ",), ("MODEL",))
    elif not sequence_parallel:
        between = (("BATCH",), ("SEQ",), ())
    else:
        between = (("BATCH",), ("SEQ", "MODEL"), ())
    per_head = shape.head_dim if shape.attention != "mla" else shape.v_head_dim
    arrays = [
        Array("residual", "activation", (rows, length, shape.d_model), between),
        Array(
            "attention_out", "activation", (rows, length, shape.heads, per_head), (("BATCH",), ("SEQ",), ("MODEL",), ())
        ),
    ]
    if shape.layers > moe_layers(shape):
        arrays.append(Array("hidden", "activation", (rows, length, shape.d_ff), (("BATCH",), ("SEQ",), ("MODEL",))))
    arrays.append(Array("logits", "activation", (rows, length, shape.vocab), (("BATCH",), ("SEQ",), ("MODEL",))))
    return arrays


def fit(
    array: Array, axes: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]
) -> tuple[list[tuple[str, ...]], bool]:
    """Mesh axes per dimension, and whether all that were meant divide it: JAX refuses shards of unequal size.

    What does not divide is left out from the minor axis on, so that the dimension stays whole there.
    """
    specs, whole = [], True
    for length, names in zip(array.shape, array.dims, strict=True):
        wanted = tuple(axis for group in names for axis in axes[group])
        kept = wanted
        while kept and length % prod(sizes[axis] for axis in kept):
            kept = kept[:-1]
        whole &= kept == wanted
        specs.append(kept)
    return specs, whole
