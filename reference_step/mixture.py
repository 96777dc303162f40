"""Routed experts: every token goes to its top-k experts, which lie on the expert axis.

A device puts its own tokens into a buffer of equal size per expert, an all-to-all hands each expert its tokens, the
expert's matmuls run, and a second all-to-all brings the results back (GShard, arXiv 2006.16668; token dispatch as in
Megatron-Core's all-to-all dispatcher).  Written with `shard_map`; left to itself, the compiler would gather
all tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from perfmodel.config import ModelShape
from reference_step.layout import Layout

#: Name of the expert matmuls' results, which the policy `minimal` keeps.
PRODUCT = "expert_product"


def capacity(tokens: int, shape: ModelShape, factor: float) -> int:
    """Places per expert for the `tokens` of one device: `factor` times the mean, at most all of them."""
    return min(tokens, ceil(tokens * shape.experts_per_token / shape.experts * factor))


def routed_experts(
    x: jax.Array, weights: dict[str, jax.Array], shape: ModelShape, layout: Layout, factor: float,
    activation: Callable[[list[jax.Array]], jax.Array],
) -> jax.Array:  # fmt: skip
    """x: [B, S, D], D sharded over the tensor axis.  weights: router [D, E], expert_* [E, …] as they are stored.

    Tokens beyond the capacity of an expert skip it.  activation: of the outputs of the first matmuls.
    """
    logits = jnp.einsum("bsd,de->bse", x, weights["router"], preferred_element_type=jnp.float32)
    logits = layout.constrain(logits, "BATCH", "SEQ", None)
    best, chosen = jax.lax.top_k(logits, shape.experts_per_token)
    shares = jax.nn.softmax(best, axis=-1).astype(x.dtype)
    into = [name for name in ("expert_gate", "expert_up") if name in weights]
    first, last = [weights[name] for name in into], weights["expert_down"]
    width: Any = ("EXPERT", "EXPERT_WEIGHTS", "MODEL")
    tokens, whole = layout.sharding(x.shape, "BATCH", "SEQ", "MODEL"), ("BATCH", "SEQ", None)
    inward = layout.sharding(first[0].shape, *width)
    outward = layout.sharding(last.shape, "EXPERT", "MODEL", "EXPERT_WEIGHTS")
    choice = layout.sharding(chosen.shape, *whole)
    local = partial(
        _on_one_device, shape=shape, factor=factor, activation=activation, expert=layout.groups["EXPERT"],
        # A dimension that an axis does not divide is whole already.
        gathered=_axes(inward.spec, 1), tensor=_axes(tokens.spec, 2),
    )  # fmt: skip
    mapped = jax.shard_map(
        local,
        mesh=layout.mesh,
        in_specs=(tokens.spec, choice.spec, choice.spec, [inward.spec] * len(first), outward.spec),
        out_specs=tokens.spec,
    )
    routed: jax.Array = mapped(x, chosen, shares, first, last)
    return routed


def _axes(spec: PartitionSpec, dimension: int) -> tuple[str, ...]:
    entry = spec[dimension]
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _on_one_device(
    x: jax.Array, chosen: jax.Array, shares: jax.Array, first: list[jax.Array], last: jax.Array, *,
    shape: ModelShape, factor: float, activation: Callable[[list[jax.Array]], jax.Array],
    expert: tuple[str, ...], gathered: tuple[str, ...], tensor: tuple[str, ...],
) -> jax.Array:  # fmt: skip
    """What a device does with its tokens [b, s, d] and its slices of the experts."""

    def gather(x: jax.Array, axes: tuple[str, ...], dimension: int) -> jax.Array:
        return jax.lax.all_gather(x, axes, axis=dimension, tiled=True) if axes else x

    batch, length, _ = x.shape
    many = batch * length * shape.experts_per_token
    places = capacity(batch * length, shape, factor)
    with jax.named_scope("dispatch"):
        # Without an expert axis the tokens are gathered over the tensor axis once, not once per expert they take.
        x = gather(x, () if expert else tensor, 2)
        wanted = jax.nn.one_hot(chosen.reshape(many), shape.experts, dtype=jnp.int32)
        # How many tokens before this one want its expert: by sums, since a sort takes the TPU compiler minutes.
        rank = jnp.sum((jnp.cumsum(wanted, axis=0) - wanted) * wanted, axis=1)
        slot = jnp.where(rank < places, chosen.reshape(many) * places + rank, shape.experts * places)
        flat = jnp.repeat(x.reshape(batch * length, -1), shape.experts_per_token, axis=0)
        buffer = jnp.zeros((shape.experts * places, flat.shape[1]), x.dtype).at[slot].set(flat, mode="drop")
        buffer = buffer.reshape(shape.experts, places, -1)
        if expert:
            buffer = jax.lax.all_to_all(buffer, expert, split_axis=0, concat_axis=1, tiled=True)
            buffer = gather(buffer, tensor, 2)
    with jax.named_scope("experts"):
        products = [jnp.einsum("ecd,edf->ecf", buffer, gather(w, gathered, 1)) for w in first]
        hidden = activation([checkpoint_name(product, PRODUCT) for product in products])
        out = jnp.einsum("ecf,efd->ecd", hidden, gather(last, gathered, 2))
    with jax.named_scope("combine"):
        if expert:
            if tensor:
                out = jax.lax.psum_scatter(out, tensor, scatter_dimension=2, tiled=True)
            out = jax.lax.all_to_all(out, expert, split_axis=1, concat_axis=0, tiled=True)
        back = out.reshape(shape.experts * places, -1).at[slot].get(mode="fill", fill_value=0)
        back = back.reshape(batch, length, shape.experts_per_token, -1)
        combined = jnp.sum(back * shares[..., None], axis=2)
        if tensor and not expert:
            combined = jax.lax.psum_scatter(combined, tensor, scatter_dimension=2, tiled=True)
    return combined
