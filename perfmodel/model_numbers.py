"""What the price of a step needs to know of the model: FLOPs, parameters and widths of one shape, as arrays."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache

from perfmodel import accounting
from perfmodel.arrays import Floats, array_of
from perfmodel.shapes import ModelShape


@dataclass(frozen=True)
class ModelNumbers:
    """Of one shape at one sequence length; see `perfmodel.accounting`.  FLOPs forward per token, parameters, widths."""

    flops_projections: Floats
    flops_scores: Floats
    flops_scores_per_local_key: Floats
    flops_scores_per_global_key: Floats
    qk_width: Floats
    v_width: Floats
    flops_mlp: Floats
    flops_experts: Floats
    flops_head: Floats
    flops_last: Floats
    model_flops: Floats
    params_dense: Floats
    params_experts: Floats
    params_vocabulary: Floats
    params_layer_largest: Floats
    layers: Floats
    moe_layers: Floats
    d_model: Floats
    vocab: Floats
    heads_narrow: Floats
    score_heads: Floats
    mlp_narrow: Floats
    mlp_share: Floats
    expert_narrow: Floats
    experts: Floats
    experts_per_token: Floats
    kv_width: Floats
    traffic_model: Floats
    traffic_sharded: Floats
    saved_none_model: Floats
    saved_none_sharded: Floats
    saved_mlp_product: Floats
    saved_minimal_model: Floats
    saved_minimal_sharded: Floats


@lru_cache(maxsize=256)
def model_numbers(shape: ModelShape, seq_len: float) -> ModelNumbers:
    count = accounting.parameters(shape)
    flops = accounting.forward_flops(shape, seq_len)
    if shape.attention == "mla":
        qk, v = shape.qk_nope_head_dim + shape.qk_rope_head_dim, shape.v_head_dim
        kv = float(shape.heads * (qk + v))
    else:
        qk = v = shape.head_dim
        kv = 2.0 * shape.kv_heads * v
    per_key = 2.0 * shape.heads * accounting.score_width(shape)
    local = accounting.local_layers(shape, seq_len)
    dense_mlp = count.layer_dense_mlp if count.dense_layers else 0.0
    experts = count.layer_experts + count.layer_shared_experts if count.moe_layers else 0.0
    expert_width = accounting.expert_width(shape)
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
        "model_flops": accounting.model_flops_per_token(shape, seq_len),
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
        "mlp_narrow": shape.d_ff if count.dense_layers else (shape.shared_experts or 1) * expert_width,
        "mlp_share": flops.dense_mlp / (flops.dense_mlp + flops.attention_projections),
        "expert_narrow": expert_width,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "kv_width": kv,
        **asdict(accounting.activation_widths(shape)),
    }
    return ModelNumbers(**{name: array_of(float(value)) for name, value in values.items()})
