"""What a transformer step costs before any hardware is named: parameters, FLOPs per token, bytes per token.

Source: scaling book chapter 4 (sections 4.3, 4.4).  All FLOPs count a multiply-add as two.  Per token unless said
otherwise; nothing here depends on the mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace

from perfmodel.arrays import array_of
from perfmodel.config import ModelShape

#: Backward FLOPs of a matmul over its forward FLOPs (book 4.1.1).
BACKWARD_MATMUL = 2.0
#: A fused attention kernel recomputes the scores in the backward pass: five products against two of the forward pass.
BACKWARD_ATTENTION_KERNEL = 2.5

#: Reads and writes of `d_model`-wide activations per layer and token in the forward pass that no fusion removes:
#: two norms (in, out), two residual additions (two in, one out), in and out of the four projections that touch d_model.
FORWARD_MODEL_WIDE_PASSES = 14.0
#: The same for the width of the MLP: out of the first product(s), activation in and out, into the last product.
FORWARD_MLP_WIDE_PASSES = {"gated": 6.0, "plain": 4.0}
#: And for q, k, v, attention output: out of the projection, rotary in and out, into the kernel, into the projection.
FORWARD_ATTENTION_WIDE_PASSES = 4.0
#: Routed tokens are permuted before and after the experts: read and write, both ways.
FORWARD_PERMUTE_PASSES = 4.0


@dataclass(frozen=True)
class Parameters:
    """Parameter counts.  `layer_*` are per layer of that kind; `total` and `active` are over the whole model.

    active: what one token passes through, the embedding row lookup excluded, the output head included.
    """

    layer_attention: float
    layer_dense_mlp: float
    layer_experts: float
    layer_shared_experts: float
    layer_router: float
    embedding: float
    head: float
    dense_layers: int
    moe_layers: int
    total: float
    active: float

    @property
    def experts(self) -> float:
        """Routed expert parameters of all layers: what an expert axis shards."""
        return self.layer_experts * self.moe_layers

    @property
    def dense(self) -> float:
        """Everything but the routed experts and the vocabulary: what every expert group replicates."""
        return self.total - self.experts - self.vocabulary

    @property
    def vocabulary(self) -> float:
        return self.embedding + self.head


@dataclass(frozen=True)
class ForwardFlops:
    """Forward FLOPs per token over all layers, by the kind of work."""

    attention_projections: float
    attention_scores: float
    dense_mlp: float
    experts: float
    head: float
    last_products: float
    """The part of `dense_mlp` and `experts` spent in the down projections, whose output no backward pass needs."""

    @property
    def matmul(self) -> float:
        """Products with weights: everything but the attention scores."""
        return self.attention_projections + self.dense_mlp + self.experts + self.head

    @property
    def total(self) -> float:
        return self.matmul + self.attention_scores


def moe_layers(shape: ModelShape) -> int:
    """Number of layers that are mixtures; the first `first_dense_layers` are not, then every `moe_layer_step`-th is."""
    if not shape.experts:
        return 0
    return max(0, (shape.layers - shape.first_dense_layers) // max(1, shape.moe_layer_step))


def mlp_matrices(shape: ModelShape) -> int:
    return 3 if shape.mlp == "gated" else 2


def expert_width(shape: ModelShape) -> int:
    """Width of one routed expert; a mixture that does not say has experts as wide as its dense MLP."""
    return shape.d_ff_expert or shape.d_ff


def attention_parameters(shape: ModelShape) -> float:
    """Parameters of one attention block, output projection included (book 4.3; MLA after DeepSeek-V2, 2.1)."""
    if shape.attention == "mla":
        qk = shape.qk_nope_head_dim + shape.qk_rope_head_dim
        if shape.q_lora_rank:
            q = shape.d_model * shape.q_lora_rank + shape.q_lora_rank * shape.heads * qk
        else:
            q = shape.d_model * shape.heads * qk
        kv = shape.d_model * (shape.kv_lora_rank + shape.qk_rope_head_dim)
        kv += shape.kv_lora_rank * shape.heads * (shape.qk_nope_head_dim + shape.v_head_dim)
        return float(q + kv + shape.heads * shape.v_head_dim * shape.d_model)
    return 2.0 * shape.d_model * shape.head_dim * (shape.heads + shape.kv_heads)


def attention_widths(shape: ModelShape) -> tuple[int, int, int]:
    """Return the width of a head's query and key, of its value, and of all keys and values of a layer together."""
    if shape.attention == "mla":
        qk, v = shape.qk_nope_head_dim + shape.qk_rope_head_dim, shape.v_head_dim
        return qk, v, shape.heads * (qk + v)
    return shape.head_dim, shape.head_dim, 2 * shape.kv_heads * shape.head_dim


def parameters(shape: ModelShape) -> Parameters:
    """All parameter counts of a shape (book 4.3, 6.2)."""
    moe = moe_layers(shape)
    dense = shape.layers - moe
    matrices = mlp_matrices(shape)
    attention = attention_parameters(shape)
    dense_mlp = float(matrices * shape.d_model * shape.d_ff)
    one_expert = float(matrices * shape.d_model * expert_width(shape))
    shared = shape.shared_experts * one_expert
    router = float(shape.d_model * shape.experts)
    embedding = float(shape.vocab * shape.d_model)
    head = 0.0 if shape.tied_embeddings else embedding
    rest = (
        shape.layers * (attention + 2.0 * shape.d_model) + dense * dense_mlp + moe * (shared + router) + shape.d_model
    )
    total = rest + moe * shape.experts * one_expert + embedding + head
    active = rest + moe * shape.experts_per_token * one_expert + embedding
    return Parameters(
        layer_attention=attention,
        layer_dense_mlp=dense_mlp,
        layer_experts=shape.experts * one_expert,
        layer_shared_experts=shared,
        layer_router=router,
        embedding=embedding,
        head=head,
        dense_layers=dense,
        moe_layers=moe,
        total=total,
        active=active,
    )


def mean_context(seq_len: float, window: float = 0.0) -> float:
    """Mean number of keys a causal query sees: half the sequence, at most the window where there is one."""
    if window and window < seq_len:
        return window - window * window / (2.0 * seq_len)
    return seq_len / 2.0


def local_layers(shape: ModelShape, seq_len: float) -> int:
    """Layers whose attention sees a window shorter than the sequence: all but one in `sliding_window_every`."""
    if not shape.sliding_window or shape.sliding_window >= seq_len:
        return 0
    every = shape.sliding_window_every
    return shape.layers - (shape.layers // every if every else 0)


def layer_contexts(shape: ModelShape, seq_len: float) -> float:
    """Sum over layers of the mean context."""
    local = local_layers(shape, seq_len)
    everything = (shape.layers - local) * mean_context(seq_len)
    return everything + local * mean_context(seq_len, shape.sliding_window)


def forward_flops(shape: ModelShape, seq_len: float) -> ForwardFlops:
    """Forward FLOPs per token (book 4.3: a training step is three times that in products with weights)."""
    count = parameters(shape)
    matrices = mlp_matrices(shape)
    qk, v, _ = attention_widths(shape)
    expert = matrices * shape.d_model * expert_width(shape)
    dense_mlp = 2.0 * (count.dense_layers * count.layer_dense_mlp + count.moe_layers * count.layer_shared_experts)
    dense_mlp += 2.0 * count.moe_layers * count.layer_router
    experts = 2.0 * count.moe_layers * shape.experts_per_token * expert
    return ForwardFlops(
        attention_projections=2.0 * shape.layers * count.layer_attention,
        attention_scores=2.0 * shape.heads * (qk + v) * layer_contexts(shape, seq_len),
        dense_mlp=dense_mlp,
        experts=experts,
        head=2.0 * shape.vocab * shape.d_model,
        last_products=(dense_mlp + experts) / matrices,
    )


def model_flops_per_token(shape: ModelShape, seq_len: float) -> float:
    """Training FLOPs per token that MFU counts: forward and backward, nothing recomputed; causal attention halved."""
    return (1.0 + BACKWARD_MATMUL) * forward_flops(shape, seq_len).total


def activation_widths(shape: ModelShape) -> dict[str, float]:
    """Return activation elements per token and layer, averaged over dense and mixture layers, by name.

    `traffic_*`: read or written in elementwise work and at the edges of products.  `saved_none_*`: kept when nothing is
    recomputed; `saved_mlp_product`: besides, where the product of a gated MLP's branches is kept; `saved_minimal_*`:
    outputs of the large products only.  `*_model` are d_model wide (sharded by a tensor axis only where the sequence
    is), `*_sharded` the widths that a tensor axis always shards: heads and MLP.  Book 4.4.2: about 20 tensors per layer
    unsharded, 7 with the large products only.
    """
    count = parameters(shape)
    moe_share = count.moe_layers / shape.layers
    active_width = (1.0 - moe_share) * shape.d_ff
    active_width += moe_share * (shape.experts_per_token + shape.shared_experts) * expert_width(shape)
    qk, v, kv = attention_widths(shape)
    heads_wide = float(shape.heads * (qk + v) + kv)
    is_latent = shape.attention == "mla"
    latent = float(shape.q_lora_rank + shape.kv_lora_rank + shape.qk_rope_head_dim) if is_latent else 0.0
    branches = mlp_matrices(shape) - 1
    routed = moe_share * shape.experts_per_token * shape.d_model
    traffic_model = FORWARD_MODEL_WIDE_PASSES * shape.d_model + 3.0 * latent + FORWARD_PERMUTE_PASSES * routed
    traffic_sharded = FORWARD_ATTENTION_WIDE_PASSES * heads_wide
    traffic_sharded += FORWARD_MLP_WIDE_PASSES[shape.mlp] * active_width
    # Kept for the backward pass: two norm inputs, two norm outputs; q k v and the attention output; both branches of a
    # gated MLP (their product is formed again, as fused kernels do) or in and out of a plain one's activation.
    return {
        "traffic_model": traffic_model,
        "traffic_sharded": traffic_sharded,
        "saved_none_model": 4.0 * shape.d_model + latent + 2.0 * routed,
        "saved_none_sharded": heads_wide + 2.0 * active_width,
        "saved_mlp_product": (branches - 1.0) * active_width,
        "saved_minimal_model": 2.0 * shape.d_model + latent + routed,
        "saved_minimal_sharded": heads_wide + branches * active_width,
    }


class ModelNumbers(SimpleNamespace):
    """Arrays of one shape at one sequence length by the names of `model_numbers`: FLOPs forward per token, parameters,
    widths."""


@lru_cache(maxsize=256)
def model_numbers(shape: ModelShape, seq_len: float) -> ModelNumbers:
    count = parameters(shape)
    flops = forward_flops(shape, seq_len)
    qk, v, kv = attention_widths(shape)
    per_key = 2.0 * shape.heads * (qk + v)
    local = local_layers(shape, seq_len)
    dense_mlp = count.layer_dense_mlp if count.dense_layers else 0.0
    experts = count.layer_experts + count.layer_shared_experts if count.moe_layers else 0.0
    one_expert = expert_width(shape)
    values = {
        "flops_projections": flops.attention_projections,
        "flops_scores": flops.attention_scores,
        "flops_scores_per_local_key": per_key * local,
        "flops_scores_per_global_key": per_key * (shape.layers - local),
        "qk_width": qk,
        "v_width": v,
        "flops_mlp": flops.dense_mlp,
        "flops_experts": flops.experts,
        "flops_head": flops.head,
        "flops_last": flops.last_products,
        "model_flops": model_flops_per_token(shape, seq_len),
        "params_dense": count.dense,
        "params_experts": count.experts,
        "params_vocabulary": count.vocabulary,
        "params_layer_largest": count.layer_attention + max(dense_mlp, experts),
        "layers": shape.layers,
        "moe_layers": count.moe_layers,
        "d_model": shape.d_model,
        "vocab": shape.vocab,
        "heads_narrow": shape.heads * v,
        "score_heads": shape.heads,
        "mlp_narrow": shape.d_ff if count.dense_layers else (shape.shared_experts or 1) * one_expert,
        "mlp_share": flops.dense_mlp / (flops.dense_mlp + flops.attention_projections),
        "expert_narrow": one_expert,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "kv_width": kv,
        **activation_widths(shape),
    }
    return ModelNumbers(**{name: array_of(float(value)) for name, value in values.items()})
