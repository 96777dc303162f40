"""The decoder: embedding, layers, loss.  B sequences, S tokens, D model width; see `sharded_arrays` for the weights.

Layers run in a `scan` over their stacked weights, in up to three stretches: dense layers before the first mixture,
repeating groups that end in a mixture, and dense layers left over.  Inside a layer its weights are cast to the compute
type and all-gathered over the axes that share them; between layers the residual is sharded as the configuration's chips
do it (`sharded_arrays.activation_arrays`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from perfmodel.accounting import moe_layers
from perfmodel.config import ModelShape
from reference_step.attention import attention
from reference_step.layout import Layout
from reference_step.mixture import PRODUCT, routed_experts
from reference_step.sharded_arrays import Array, Dims

Params = dict[str, jax.Array]

LAYER_INPUT = "layer_input"
#: Kept besides the outputs of matmuls where nothing is to be recomputed.
KEPT = "kept"


def _policies() -> dict[str, Callable[..., Any]]:
    known = jax.checkpoint_policies
    return {
        # Named, since a policy that keeps everything would keep gathered weights and attention scores too.
        "none": known.save_from_both_policies(
            known.dots_with_no_batch_dims_saveable, known.save_only_these_names(PRODUCT, KEPT)
        ),
        "minimal": known.save_from_both_policies(
            known.dots_with_no_batch_dims_saveable, known.save_only_these_names(PRODUCT)
        ),
        "full": known.nothing_saveable,
        "offload": known.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=[LAYER_INPUT],
            offload_src="device", offload_dst="pinned_host",
        ),
    }  # fmt: skip


@dataclass(frozen=True)
class Stretch:
    """`repeats` times the layers of `kinds` (`dense` or `moe`).  layer, dense, moe: where it starts in each stack."""

    kinds: tuple[str, ...]
    repeats: int
    layer: int
    dense: int
    moe: int


def stretches(shape: ModelShape) -> list[Stretch]:
    mixtures = moe_layers(shape)
    if not mixtures:
        return [Stretch(("dense",), shape.layers, 0, 0, 0)]
    step, first = max(1, shape.moe_layer_step), shape.first_dense_layers
    runs = [Stretch(("dense",), first, 0, 0, 0)] if first else []
    runs.append(Stretch(("dense",) * (step - 1) + ("moe",), mixtures, first, first, 0))
    done = first + mixtures * step
    if done < shape.layers:
        runs.append(Stretch(("dense",), shape.layers - done, done, done - mixtures, mixtures))
    return runs


@dataclass(frozen=True)
class Decoder:
    """weights: how each is shaped and sharded.  residual: how the activations between layers are sharded."""

    shape: ModelShape
    layout: Layout
    weights: dict[str, Array]
    residual: Dims
    dtype: Any
    remat: str
    capacity_factor: float

    def loss(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Mean cross-entropy of the next token, float32; tokens: [B, S] int32."""
        with jax.named_scope("embed"):
            x = self._weight("embedding", params["embedding"])[tokens]
            x = self._between(x)
        seen = self._sees_everything()
        for stretch in stretches(self.shape):
            x, _ = jax.lax.scan(partial(self._group, stretch), x, self._stacks(stretch, params, seen))
        with jax.named_scope("loss"):
            x = self._whole(_norm(x, params["final_norm"]))
            if "head" in params:
                logits = jnp.einsum("bsd,dv->bsv", x, self._weight("head", params["head"]))
            else:
                logits = jnp.einsum("bsd,vd->bsv", x, self._weight("embedding", params["embedding"]))
            logits = self.layout.constrain(logits, "BATCH", "SEQ", "MODEL")
            return _cross_entropy(logits, jnp.roll(tokens, -1, axis=1))

    def _between(self, x: jax.Array) -> jax.Array:
        return self.layout.constrain(x, *self.residual)

    def _whole(self, x: jax.Array) -> jax.Array:
        """From between layers to the input of a matmul: gathered over the tensor axis."""
        return self.layout.gather(x, self.residual, ("BATCH", "SEQ", None))

    def _weight(self, name: str, weight: jax.Array) -> jax.Array:
        """The weight of one layer as matmuls take it: in the compute type, whole but for tensor and expert axes."""
        dims = self.weights[name].dims[-weight.ndim :]
        whole = tuple(tuple(g for g in groups if g in ("MODEL", "EXPERT")) for groups in dims)
        return self.layout.gather(weight.astype(self.dtype), dims, whole)

    def _stacks(self, stretch: Stretch, params: Params, sees_everything: jax.Array) -> list[Params]:
        """Per layer of the group its weights, stacked over the repeats."""
        dense, moe = stretch.kinds.count("dense"), stretch.kinds.count("moe")
        stacks: list[Params] = []
        for position, kind in enumerate(stretch.kinds):
            one: Params = {}
            for name, weight in (params | {"sees_everything": sees_everything}).items():
                of = _stack_of(name)
                if of == "layer":
                    start, per_group, at = stretch.layer, len(stretch.kinds), position
                elif of == kind:
                    # Every group has its mixture last, so that a dense layer's place among the dense is its position.
                    start, per_group = (stretch.dense, dense) if kind == "dense" else (stretch.moe, moe)
                    at = position if kind == "dense" else 0
                else:
                    continue
                one[name] = weight[start + at : start + stretch.repeats * per_group : per_group]
            stacks.append(one)
        return stacks

    def _group(self, stretch: Stretch, x: jax.Array, weights: list[Params]) -> tuple[jax.Array, None]:
        policy = _policies()[self.remat]
        for kind, own in zip(stretch.kinds, weights, strict=True):
            x = jax.checkpoint(partial(self._layer, kind), policy=policy)(x, own)
        return x, None

    def _layer(self, kind: str, x: jax.Array, weights: Params) -> jax.Array:
        x = checkpoint_name(x, LAYER_INPUT)
        with jax.named_scope("attention"):
            own = {
                n: self._weight(n, w)
                for n, w in weights.items()
                if n in self.weights and n.startswith(("wq", "wk", "wv"))
            }
            normed = self._whole(checkpoint_name(_norm(x, weights["norms"][0]), KEPT))
            mixed = attention(normed, own, weights["sees_everything"], self.shape, self.layout)
            mixed = checkpoint_name(mixed, KEPT)
            x = x + self._between(jnp.einsum("bsnh,nhd->bsd", mixed, self._weight("wo", weights["wo"])))
        with jax.named_scope("mlp"):
            x = checkpoint_name(x, KEPT)
            normed = checkpoint_name(_norm(x, weights["norms"][1]), KEPT)
            if kind == "dense":
                return x + self._between(self._mlp("w", self._whole(normed), weights))
            fed_forward = self._routed(normed, weights)
            if self.shape.shared_experts:
                fed_forward = fed_forward + self._between(self._mlp("shared", self._whole(normed), weights))
            return x + fed_forward

    def _routed(self, x: jax.Array, weights: Params) -> jax.Array:
        own = {n: w.astype(self.dtype) for n, w in weights.items() if n.startswith("expert_")}
        own["router"] = self._weight("router", weights["router"])
        x = self.layout.constrain(x, "BATCH", "SEQ", "MODEL")
        routed = routed_experts(x, own, self.shape, self.layout, self.capacity_factor, _activation)
        return self._between(routed)

    def _mlp(self, name: str, x: jax.Array, weights: Params) -> jax.Array:
        into = [f"{name}_{part}" for part in ("gate", "up") if f"{name}_{part}" in weights]
        products = [x @ self._weight(n, weights[n]) for n in into]
        products = [self.layout.constrain(product, "BATCH", "SEQ", "MODEL") for product in products]
        return _activation(products) @ self._weight(f"{name}_down", weights[f"{name}_down"])

    def _sees_everything(self) -> jax.Array:
        """Per layer whether its attention ignores the sliding window: one in `sliding_window_every`."""
        every = self.shape.sliding_window_every
        number = jnp.arange(1, self.shape.layers + 1)
        return number % every == 0 if every else jnp.zeros(self.shape.layers, bool)


def _stack_of(name: str) -> str:
    """Which stack a weight belongs to: of all layers, of the dense ones, of the mixtures, or none."""
    if name in ("embedding", "head", "final_norm"):
        return "none"
    if name.startswith(("expert_", "router", "shared_")):
        return "moe"
    return "dense" if name in ("w_gate", "w_up", "w_down") else "layer"


def _activation(products: list[jax.Array]) -> jax.Array:
    """SwiGLU of two branches, GELU of one."""
    return jax.nn.silu(products[0]) * products[1] if len(products) == 2 else jax.nn.gelu(products[0])


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over D, in float32."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """A sum over the vocabulary picks the target's logit: indexing would gather a vocabulary that is sharded."""
    wide = logits.astype(jnp.float32)
    words = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    chosen = jnp.sum(jnp.where(words == targets[..., None], wide, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(wide, axis=-1) - chosen)
