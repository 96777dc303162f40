"""A decoder-only transformer and its AdamW training step, sharded by `NamedSharding` alone.

Shapes: B sequences, S tokens, D model width, N query heads and K key heads of H, F feed-forward width, V vocabulary,
L layers.  Weights are sharded over the batch and sequence axes (fully sharded data parallelism) on D and over the
tensor axis on heads, F and V; activations over batch axes on B and the sequence axis on S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Params = dict[str, Any]


@dataclass(frozen=True)
class Axes:
    """Mesh axis names by what they shard: batch, sequence, tensor.  `weights` are those that share one weight."""

    batch: tuple[str, ...]
    seq: tuple[str, ...]
    tensor: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    layers: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


@dataclass(frozen=True)
class Model:
    shape: Shape
    axes: Axes
    mesh: Mesh

    def sharded(self, *spec: Any) -> NamedSharding:
        """Empty axis tuples mean: not sharded."""
        return NamedSharding(self.mesh, PartitionSpec(*(axes or None for axes in spec)))

    def weight_shapes(self) -> dict[str, tuple[tuple[int, ...], NamedSharding]]:
        """Shape and sharding of every weight; layer weights are stacked on a leading L."""
        s, a = self.shape, self.axes
        wide, narrow = s.heads * s.head_dim, s.kv_heads * s.head_dim
        inward = self.sharded((), a.weights, a.tensor)
        outward = self.sharded((), a.tensor, a.weights)
        return {
            "embed": ((s.vocab, s.d_model), self.sharded(a.tensor, a.weights)),
            "query": ((s.layers, s.d_model, wide), inward),
            "key": ((s.layers, s.d_model, narrow), inward),
            "value": ((s.layers, s.d_model, narrow), inward),
            "out": ((s.layers, wide, s.d_model), outward),
            "gate": ((s.layers, s.d_model, s.d_ff), inward),
            "up": ((s.layers, s.d_model, s.d_ff), inward),
            "down": ((s.layers, s.d_ff, s.d_model), outward),
        }

    def init(self, key: jax.Array) -> Params:
        """Normal weights with standard deviation 1/sqrt(fan-in), in f32."""
        params = {}
        for name, (dims, sharding) in self.weight_shapes().items():
            key, own = jax.random.split(key)
            weight = jax.random.normal(own, dims, jnp.float32) * dims[-2] ** -0.5
            params[name] = jax.device_put(weight, sharding)
        return params

    def loss(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Mean cross-entropy of the next token; `tokens` is [B, S] int32."""
        a = self.axes
        activations = self.sharded(a.batch, a.seq, ())
        with jax.named_scope("embed"):
            x = params["embed"].astype(jnp.bfloat16)[tokens]
            x = jax.lax.with_sharding_constraint(x, activations)

        def layer(x: jax.Array, weights: Params) -> tuple[jax.Array, None]:
            with jax.named_scope("attention"):
                x = x + self._attention(_norm(x), weights)
            with jax.named_scope("mlp"):
                x = x + self._mlp(_norm(x), weights)
            return jax.lax.with_sharding_constraint(x, activations), None

        stacked = {name: value.astype(jnp.bfloat16) for name, value in params.items() if name != "embed"}
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, stacked)
        with jax.named_scope("loss"):
            logits = jnp.einsum("bsd,vd->bsv", _norm(x), params["embed"].astype(jnp.bfloat16)).astype(jnp.float32)
            logits = jax.lax.with_sharding_constraint(logits, self.sharded(a.batch, a.seq, a.tensor))
            targets = jnp.roll(tokens, -1, axis=1)
            chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

    def _attention(self, x: jax.Array, weights: Params) -> jax.Array:
        s, a = self.shape, self.axes
        batch, length, _ = x.shape
        group = s.heads // s.kv_heads
        query = (x @ weights["query"]).reshape(batch, length, s.kv_heads, group, s.head_dim)
        key = (x @ weights["key"]).reshape(batch, length, s.kv_heads, s.head_dim)
        value = (x @ weights["value"]).reshape(batch, length, s.kv_heads, s.head_dim)
        # Every query needs the keys of the whole sequence: they are gathered over the sequence axis.
        whole = self.sharded(a.batch, (), a.tensor, ())
        key = jax.lax.with_sharding_constraint(key, whole)
        value = jax.lax.with_sharding_constraint(value, whole)
        scores = jnp.einsum("bqkgh,bskh->bkgqs", query, key).astype(jnp.float32) * s.head_dim**-0.5
        causal = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
        shares = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bkgqs,bskh->bqkgh", shares, value).reshape(batch, length, -1)
        return mixed @ weights["out"]

    def _mlp(self, x: jax.Array, weights: Params) -> jax.Array:
        return (jax.nn.silu(x @ weights["gate"]) * (x @ weights["up"])) @ weights["down"]

    def train_step(self, params: Params, moments: Params, tokens: jax.Array) -> tuple[Params, Params, jax.Array]:
        """One AdamW update; returns new parameters, new moments and the loss before it."""
        loss, gradients = jax.value_and_grad(self.loss)(params, tokens)
        with jax.named_scope("adamw"):
            count = moments["count"] + 1
            mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments["mean"], gradients)
            square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, moments["square"], gradients)

            def update(weight: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
                step = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.95**count)) + 1e-8)
                return weight - 3e-4 * (step + 0.1 * weight)

            params = jax.tree.map(update, params, mean, square)
        return params, {"count": count, "mean": mean, "square": square}, loss


def _norm(x: jax.Array) -> jax.Array:
    """Root-mean-square norm over D, without a learned scale."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def zero_moments(params: Params) -> Params:
    """AdamW's state: step count (f32 scalar) and two moments with the shardings of the parameters."""
    mesh = next(iter(params.values())).sharding.mesh
    return {
        "count": jax.device_put(jnp.zeros((), jnp.float32), NamedSharding(mesh, PartitionSpec())),
        "mean": jax.tree.map(jnp.zeros_like, params),
        "square": jax.tree.map(jnp.zeros_like, params),
    }
