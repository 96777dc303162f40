"""Transformer shapes: what a model is made of, as far as the step's cost goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Shape of a decoder-only transformer.

    layers, d_model, d_ff, heads, kv_heads, head_dim, vocab: counts and widths.  mlp: `gated` (three matrices) or
    `plain` (two).  Mixtures: `experts` routed experts of which each token takes `experts_per_token`, each `d_ff_expert`
    wide, beside `shared_experts`; the first `first_dense_layers` layers are dense (`d_ff`), after that every
    `moe_layer_step`-th layer is a mixture.  attention: `gqa`, or `mla` with its ranks.  sliding_window: tokens seen by
    local layers; one layer in `sliding_window_every` is global.
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    name: str = ""
    mlp: str = "gated"
    tied_embeddings: bool = False
    experts: int = 0
    experts_per_token: int = 0
    d_ff_expert: int = 0
    shared_experts: int = 0
    first_dense_layers: int = 0
    moe_layer_step: int = 1
    attention: str = "gqa"
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    sliding_window_every: int = 0
    source: str = ""
