"""What a step asks of each resource, before any efficiency: seconds at peak, bytes, calls.  Per chip and step.

Source: scaling book chapters 4 (FLOPs), 5 (collectives of each kind of parallelism, table in 5.2).  All values are
arrays that broadcast over candidates; the efficiencies of `perfmodel.step_time` only scale and combine them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel import accounting, memory
from perfmodel.arrays import Floats
from perfmodel.traffic import Traffic, owned_weights, step_traffic
from perfmodel.workload import ACTIVATION_BYTES, MASTER_BYTES, REMAT, WEIGHT_BYTES, Workload

#: Keys per block of a fused attention kernel: MaxText's splash attention default, FlashAttention's tile.
TPU_ATTENTION_BLOCK = 512.0
GPU_ATTENTION_BLOCK = 128.0
#: Head size up to which a smaller head saves no time.
HEAD_LANES = 128.0
#: Bytes per attention score that an unfused kernel moves through HBM: written by the first product, read, masked and
#: written by the softmax, dropout and its mask, read by the second product; in the backward pass twice as much.
UNFUSED_SCORE_BYTES = 12.0
UNFUSED_BACKWARD = 2.0


@dataclass(frozen=True)
class Terms:
    """Seconds at peak of the work with weights, of grouped experts, of attention kernels, of the vocabulary; HBM; host.

    Each *_forward part is what a full recomputation repeats.  rows: tokens per micro-batch that one chip multiplies;
    expert_rows: the same per expert.  heads_narrow, mlp_narrow, expert_narrow: width of a chip's share of the heads, of
    the MLP, of an expert.  scores_padding: how much more an attention kernel computes than the scores that count;
    narrow_heads: 128 over the head size of a GPU; softmax_s: HBM traffic of scores where the kernel is not fused.
    layer_passes: layers × micro-batches a chip runs through forward.  bubble: idle share of the pipeline relative to
    its busy time.  memory_share: of the memory that a program can fill, where being full makes it stall.  recomputed:
    share (0–1) of a full recomputation that a program does because its memory is full, where nobody said what is
    recomputed.  work: what the step computes, on what.
    """

    dense_s: Floats
    dense_forward_s: Floats
    experts_s: Floats
    experts_forward_s: Floats
    scores_s: Floats
    scores_forward_s: Floats
    scores_padding: Floats
    narrow_heads: Floats
    softmax_s: Floats
    softmax_forward_s: Floats
    head_s: Floats
    rows: Floats
    heads_narrow: Floats
    mlp_narrow: Floats
    expert_rows: Floats
    expert_narrow: Floats
    hbm_weights_s: Floats
    hbm_activations_s: Floats
    hbm_recompute_s: Floats
    hbm_optimizer_s: Floats
    host_s: Floats
    traffic: Mapping[str, Traffic]
    layer_passes: Floats
    moe_layer_passes: Floats
    bubble: Floats
    memory_share: Floats
    recomputed: Floats
    model_flops_per_chip: Floats
    tokens_per_chip: Floats
    work: Workload


def step_terms(w: Workload) -> Terms:
    """All terms of a step.  Arrays of the broadcast shape of the workload's fields, or of a shape that broadcasts."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    tokens = train.global_batch * train.seq_len
    shards = mesh.token_shards
    group_tokens = tokens / shards
    micro = train.micro_batches
    rows = group_tokens / micro
    stages = mesh.pipeline
    virtual = np.where(stages > 1, train.virtual_stages, 1.0)
    busiest, head_share = _busiest_stage(w, stages, virtual)
    layer_share = busiest / model.layers
    work = group_tokens / mesh.model

    three = 1.0 + accounting.BACKWARD_MATMUL
    # XLA drops what a recomputation computes in vain, the last product of the MLP; PyTorch runs the layer again whole.
    mlp_flops = model.flops_mlp + model.flops_experts
    again = 1.0 - np.where(chip.gpu > 0, 0.0, model.flops_last / np.maximum(mlp_flops, 1.0))
    dense_forward = work * (model.flops_projections + model.flops_mlp) * layer_share / chip.peak
    mlp_forward = work * model.flops_mlp * layer_share / chip.peak
    experts_forward = work * model.flops_experts * layer_share / chip.peak
    scores_forward = work * model.flops_scores * layer_share / chip.peak_bf16
    head = three * work * model.flops_head * head_share / chip.peak_bf16

    bandwidth = chip.hbm_bytes_per_s
    dense_params, expert_params, vocabulary = _local_parameters(w, layer_share)
    local = dense_params + expert_params + vocabulary
    owned_dense, owned_experts = owned_weights(w, dense_params + vocabulary, expert_params)
    owned = owned_dense + owned_experts
    # Read forward and backward, gradients written and, over micro-batches, added up.
    sums = train.gradient_sum_bytes
    weight_bytes = micro * local * (2.0 * WEIGHT_BYTES + np.where(micro > 1, 2.0 * sums, train.gradient_bytes))
    optimizer_bytes = owned * (2.0 * MASTER_BYTES + 2.0 * train.moment_bytes + sums + WEIGHT_BYTES)
    width = (model.traffic_model + model.traffic_sharded) / mesh.model
    forward_bytes = group_tokens * busiest * width * ACTIVATION_BYTES
    logits_bytes = work * model.vocab * (ACTIVATION_BYTES + 3.0 * 4.0) * head_share
    host_bytes = np.where(train.remat == REMAT.index("offload"), 2.0 * work * busiest * model.d_model * 2.0, 0.0)

    # An unfused kernel computes all scores, the masked half too.
    scores = group_tokens * train.seq_len * model.score_heads / mesh.model * busiest
    softmax = np.where(train.unfused_attention > 0, scores * UNFUSED_SCORE_BYTES / bandwidth, 0.0)
    terms_traffic = step_traffic(w, group_tokens, busiest, layer_share, dense_params, expert_params, vocabulary)
    passes = busiest * micro
    moe_passes = model.moe_layers * layer_share * micro
    expert_rows = np.where(
        model.experts > 0, rows * mesh.expert * model.experts_per_token / np.maximum(model.experts, 1.0), 0.0
    )
    return Terms(
        dense_s=three * dense_forward,
        dense_forward_s=dense_forward - (1.0 - again) * mlp_forward,
        experts_s=three * experts_forward,
        experts_forward_s=again * experts_forward,
        scores_s=(1.0 + accounting.BACKWARD_ATTENTION_KERNEL) * scores_forward,
        scores_forward_s=scores_forward,
        scores_padding=_scores_padding(w),
        narrow_heads=_narrow_heads(w),
        softmax_s=softmax * (1.0 + UNFUSED_BACKWARD),
        softmax_forward_s=softmax,
        head_s=head,
        rows=rows,
        heads_narrow=model.heads_narrow / mesh.model,
        mlp_narrow=model.mlp_narrow / mesh.model,
        expert_rows=expert_rows,
        expert_narrow=model.expert_narrow / mesh.model,
        hbm_weights_s=weight_bytes / bandwidth,
        hbm_activations_s=(3.0 * forward_bytes + 2.0 * logits_bytes) / bandwidth,
        hbm_recompute_s=forward_bytes / bandwidth,
        hbm_optimizer_s=optimizer_bytes / bandwidth,
        host_s=host_bytes / chip.host_link_bytes_per_s,
        traffic=terms_traffic,
        layer_passes=passes,
        moe_layer_passes=moe_passes,
        bubble=(stages - 1.0) / (virtual * micro),
        memory_share=_memory_share(w),
        recomputed=_recomputed(w),
        model_flops_per_chip=tokens * model.model_flops / chip.chips,
        tokens_per_chip=tokens / chip.chips,
        work=w,
    )


def _busiest_stage(w: Workload, stages: Floats, virtual: Floats) -> tuple[Floats, Floats]:
    """Layers of the stage that determines the time, and the share of the head's work that it does besides.

    Megatron gives every stage as many layers, and layers that do not divide leave slots for embedding and head.
    Programs that balance stages by work fill one stage after the other, the head counted as the layers it costs.
    """
    model = w.model
    slots = stages * virtual
    even = np.mod(model.layers, slots) == 0
    uneven_layers = np.ceil((model.layers + 2.0) / slots) * virtual
    busiest = np.where(even, model.layers / stages, np.minimum(uneven_layers, model.layers))
    head_share = np.where(even | (stages == 1), 1.0, 0.0)
    in_layers = model.flops_projections + model.flops_mlp + model.flops_experts + model.flops_scores
    head = model.flops_head / (in_layers / model.layers)
    filled = np.minimum(np.ceil((model.layers + head) / stages), model.layers)
    last = head + np.maximum(0.0, model.layers - filled * (stages - 1.0))
    balanced = (w.training.balanced_stages > 0) & (stages > 1)
    beyond = np.clip((last - filled) / head, 0.0, 1.0)
    return np.where(balanced, filled, busiest), np.where(balanced, beyond, head_share)


def _memory_share(w: Workload) -> Floats:
    """What the program would allocate over what it can fill, of programs that full memory makes stall; 0 of others."""
    if not np.any(w.training.stalls_when_full > 0):
        return np.zeros(1)
    return np.where(w.training.stalls_when_full > 0, memory.per_chip(w).pressure, 0.0)


def _recomputed(w: Workload) -> Floats:
    """Return the share of a full recomputation that lets a program fit whose policy nobody stated; 0 for others."""
    if not np.any(w.training.remat_open > 0):
        return np.zeros(1)
    return memory.per_chip(w).recomputed


def _narrow_heads(w: Workload) -> Floats:
    """On a GPU, how much narrower than 128 a head is: the exponentials of a score take as long whatever its size."""
    return np.where(w.chip.gpu > 0, np.maximum(1.0, 2.0 * HEAD_LANES / (w.model.qk_width + w.model.v_width)), 1.0)


def _scores_padding(w: Workload) -> Floats:
    """What an attention kernel computes over what counts.

    A TPU pads heads to the 128 lanes of its MXU.  Kernels work on blocks of queries: below the causal diagonal half a
    block more, beside a window a block more.  An unfused kernel computes all scores, the masked half too.
    """
    model = w.model
    if_gpu = w.chip.gpu > 0
    padded = np.ceil(model.qk_width / HEAD_LANES) + np.ceil(model.v_width / HEAD_LANES)
    heads = np.where(if_gpu, 1.0, padded * HEAD_LANES / (model.qk_width + model.v_width))
    block = np.minimum(np.where(if_gpu, GPU_ATTENTION_BLOCK, TPU_ATTENTION_BLOCK), w.training.seq_len / 2.0)
    more = (model.flops_scores_per_local_key + model.flops_scores_per_global_key / 2.0) * block
    fused = heads * (1.0 + more / np.maximum(model.flops_scores, 1.0))
    whole = (model.flops_scores_per_local_key + model.flops_scores_per_global_key) * w.training.seq_len
    unfused = heads * whole / np.maximum(model.flops_scores, 1.0)
    return np.asarray(np.where(w.training.unfused_attention > 0, unfused, fused))


def _local_parameters(w: Workload, layer_share: Floats) -> tuple[Floats, Floats, Floats]:
    """Parameters a chip works with in full: its stage, its tensor share, its experts."""
    split = w.mesh.model
    dense = w.model.params_dense * layer_share / split
    experts = w.model.params_experts * layer_share / (split * w.mesh.expert)
    return dense, experts, w.model.params_vocabulary / split / np.where(w.mesh.pipeline > 1, 2.0, 1.0)
