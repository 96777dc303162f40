"""A transformer's shape as Megatron-LM's arguments.

Sources (NVIDIA/Megatron-LM): megatron/training/arguments.py (network size, moe, mla groups; `moe_freq_type` patterns),
megatron/core/transformer/transformer_config.py (arguments made from its fields).
"""

from __future__ import annotations

from perfmodel.accounting import expert_width, moe_layers
from perfmodel.config import ModelShape, Training
from proposals.launch.file import Word


def model_arguments(shape: ModelShape | None, training: Training, notes: list[str]) -> dict[str, Word]:
    """Arguments for the model; empty where it is not known, which a note says."""
    if shape is None:
        notes.append(
            "The model is not known: add its arguments (--num-layers, --hidden-size, --num-attention-heads, …)."
        )
        return {}
    arguments: dict[str, Word] = {
        "--num-layers": shape.layers,
        "--hidden-size": shape.d_model,
        "--ffn-hidden-size": shape.d_ff,
        "--num-attention-heads": shape.heads,
        "--vocab-size": shape.vocab,
    }
    if shape.attention == "mla":
        arguments |= _latent(shape)
    else:
        arguments["--kv-channels"] = shape.head_dim
        if shape.kv_heads != shape.heads:
            arguments |= {"--group-query-attention": "", "--num-query-groups": shape.kv_heads}
    if shape.mlp == "gated":
        arguments["--swiglu"] = ""
    if not shape.tied_embeddings:
        arguments["--untie-embeddings-and-output-weights"] = ""
    if shape.sliding_window:
        arguments["--window-size"] = f"{shape.sliding_window},0"
        if shape.sliding_window_every:
            arguments["--window-attn-skip-freq"] = shape.sliding_window_every
    if shape.experts:
        arguments |= _mixture(shape)
    notes.append(
        "Normalisation, position embedding, biases and the kind of gate are not part of the shape: add what the "
        "model uses (for instance --normalization RMSNorm --position-embedding-type rope --disable-bias-linear)."
    )
    return arguments


def _latent(shape: ModelShape) -> dict[str, Word]:
    arguments: dict[str, Word] = {"--multi-latent-attention": ""}
    if shape.q_lora_rank:
        arguments["--q-lora-rank"] = shape.q_lora_rank
    return arguments | {
        "--kv-lora-rank": shape.kv_lora_rank,
        "--qk-head-dim": shape.qk_nope_head_dim,
        "--qk-pos-emb-head-dim": shape.qk_rope_head_dim,
        "--v-head-dim": shape.v_head_dim,
    }


def layer_pattern(shape: ModelShape) -> str:
    """Megatron's `--moe-layer-freq`: the leading dense layers, then every `moe_layer_step`-th a mixture."""
    step, first = max(1, shape.moe_layer_step), shape.first_dense_layers
    groups = moe_layers(shape)
    rest = shape.layers - first - groups * step
    parts = [f"[0]*{first}"] if first else []
    parts.append(f"([0]*{step - 1}+[1])*{groups}" if step > 1 else f"[1]*{groups}")
    parts += [f"[0]*{rest}"] if rest else []
    return f"({'+'.join(parts)})"


def _mixture(shape: ModelShape) -> dict[str, Word]:
    arguments: dict[str, Word] = {
        "--num-experts": shape.experts,
        "--moe-router-topk": shape.experts_per_token,
        "--moe-ffn-hidden-size": expert_width(shape),
        "--moe-token-dispatcher-type": "alltoall",
    }
    if moe_layers(shape) != shape.layers:
        arguments["--moe-layer-freq"] = layer_pattern(shape)
    if shape.shared_experts:
        arguments["--moe-shared-expert-intermediate-size"] = shape.shared_experts * expert_width(shape)
    return arguments
