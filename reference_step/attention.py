"""Causal self-attention: grouped-query (GQA) or multi-head latent (MLA), full or within a sliding window.

Queries stay sharded over the sequence axis; keys and values are all-gathered over it.  Scores are formed for a block
of queries at a time and again in the backward pass, so that memory grows with the sequence and not with its square, as
in a fused kernel.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from perfmodel.config import ModelShape
from reference_step.layout import Layout

ROPE_BASE = 500_000.0
#: Queries per block: at most MOST_QUERIES, fewer where the scores of a block on one device take more than SCORE_BYTES.
MOST_QUERIES, LEAST_QUERIES = 512, 128
SCORE_BYTES = 1 << 27

Weights = dict[str, jax.Array]


def attention(x: jax.Array, weights: Weights, is_global: jax.Array, shape: ModelShape, layout: Layout) -> jax.Array:
    """x: [B, S, D], whole on the tensor axis; is_global: whether the layer ignores the sliding window.

    Returns [B, S, heads, v_head_dim], before the output projection.
    """
    query, key, value = _latent(x, weights, shape) if shape.attention == "mla" else _grouped(x, weights)
    window = shape.sliding_window if 0 < shape.sliding_window < x.shape[1] else 0
    of_queries = layout.sharding(query.shape, "BATCH", "SEQ", "MODEL", None).spec
    of_keys = layout.sharding(key.shape, "BATCH", "SEQ", "MODEL", None).spec
    mapped = jax.shard_map(
        partial(_on_one_device, window=window, seq=layout.groups["SEQ"]),
        mesh=layout.mesh,
        in_specs=(of_queries, of_keys, of_keys, PartitionSpec()),
        out_specs=of_queries,
    )
    attended: jax.Array = mapped(query, key, value, is_global)
    return attended


def _grouped(x: jax.Array, weights: Weights) -> tuple[jax.Array, jax.Array, jax.Array]:
    query, key, value = (jnp.einsum("bsd,dnh->bsnh", x, weights[name]) for name in ("wq", "wk", "wv"))
    return _rotated(query), _rotated(key), value


def _latent(x: jax.Array, weights: Weights, shape: ModelShape) -> tuple[jax.Array, jax.Array, jax.Array]:
    """DeepSeek-V2, section 2.1: queries and keys are a part without positions and a rotated one, which keys share."""
    nope = shape.qk_nope_head_dim
    compressed = x @ weights["wq_down"] if "wq_down" in weights else x
    query = jnp.einsum("bsr,rnh->bsnh", compressed, weights["wq_up"])
    query = jnp.concatenate([query[..., :nope], _rotated(query[..., nope:])], axis=-1)
    down = x @ weights["wkv_down"]
    both = jnp.einsum("bsr,rnh->bsnh", down[..., : shape.kv_lora_rank], weights["wkv_up"])
    shared = _rotated(down[..., None, shape.kv_lora_rank :])
    shared = jnp.broadcast_to(shared, (*both.shape[:3], shape.qk_rope_head_dim))
    return query, jnp.concatenate([both[..., :nope], shared], axis=-1), both[..., nope:]


def _rotated(x: jax.Array) -> jax.Array:
    """Rotary position embedding of [B, S, N, H]."""
    half = x.shape[-1] // 2
    frequency = ROPE_BASE ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None, None] * frequency
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _queries_per_block(query: jax.Array, keys: int) -> int:
    """Divides the queries of a device, [b, s, heads, H]."""
    batch, length, heads, _ = query.shape
    most = min(length, MOST_QUERIES, max(LEAST_QUERIES, SCORE_BYTES // (4 * keys * batch * heads)))
    return next(size for size in range(most, 0, -1) if length % size == 0)


def _on_one_device(
    query: jax.Array, key: jax.Array, value: jax.Array, is_global: jax.Array, *, window: int, seq: tuple[str, ...]
) -> jax.Array:
    """What a device does with its queries, once it has the keys and values of the whole sequence.

    The gradients of the keys are summed over its blocks before they are reduce-scattered, which the compiler does not
    find by itself: it would scatter those of every block.
    """
    batch, length, heads, width = query.shape
    start = jax.lax.axis_index(seq) * length if seq else 0
    if seq:
        key, value = (jax.lax.all_gather(x, seq, axis=1, tiled=True) for x in (key, value))
    kv_heads, block = key.shape[2], _queries_per_block(query, key.shape[1])
    query = query.reshape(batch, length // block, block, kv_heads, heads // kv_heads, width).swapaxes(0, 1)
    keys = jnp.arange(key.shape[1])

    @jax.checkpoint
    def mixed(number: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        position = (start + number * block + jnp.arange(block))[:, None]
        scores = jnp.einsum("btkgh,bskh->bkgts", query, key, preferred_element_type=jnp.float32) * width**-0.5
        seen = keys <= position
        if window:
            seen &= is_global | (keys > position - window)
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1).astype(value.dtype)
        return jnp.einsum("bkgts,bskh->btkgh", shares, value)

    blocks = jnp.arange(length // block)
    _, attended = jax.lax.scan(lambda none, one: (none, mixed(*one, key, value)), None, (blocks, query))
    return attended.swapaxes(0, 1).reshape(batch, length, heads, value.shape[-1])
