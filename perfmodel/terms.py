"""What a step asks of each resource, before any efficiency: seconds at peak, bytes, calls.  Per chip and step.

Source: scaling book chapters 4 (FLOPs), 5 (collectives of each kind of parallelism, table in 5.2).  All values are
arrays that broadcast over candidates; the efficiencies of `perfmodel.step_time` only scale and combine them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from perfmodel import accounting, memory
from perfmodel.arrays import Floats
from perfmodel.topology import Links, Transfer, all_to_all_transfer, gather_transfer, moved, permute_transfer
from perfmodel.workload import ACTIVATION_BYTES, MASTER_BYTES, REMAT, SHARDING, WEIGHT_BYTES, Workload


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: seconds at full bandwidth, and calls per step.

    group: the links it runs on, a key of GROUPS.  ici_s: on the links inside a slice or an NVLink domain; network_s:
    between NVLink domains, at the same time; dcn_s: across slices.  calls: on the critical path of the group; ranks:
    chips of the group, domains: NVLink domains it spans.  reduced: 1 where it is one all-reduce of unsharded gradients
    per step, whatever the micro-batches; sharded: 1 where gradients and weights of a sharded optimizer move once per
    step; serial: 1 where no schedule runs anything beside it.  sent_bytes: by a chip inside the slice, per step.
    """

    group: str
    ici_s: Floats
    network_s: Floats
    dcn_s: Floats
    calls: Floats
    ranks: Floats
    domains: Floats
    sent_bytes: Floats
    reduced: Floats = field(default_factory=lambda: np.zeros(1))
    sharded: Floats = field(default_factory=lambda: np.zeros(1))
    serial: Floats = field(default_factory=lambda: np.zeros(1))


#: How often a layer's weights are gathered where they are sharded: for the forward and for the backward pass.
GATHERS = 2.0


def _owned_weights(w: Workload, dense: Floats, experts: Floats) -> tuple[Floats, Floats]:
    """Return which of so many dense and expert weights a chip owns, where they are sharded."""
    is_whole = w.training.sharding == SHARDING.index("none")
    links, across = w.mesh.links, w.mesh.dcn_fsdp
    return (
        dense / np.where(is_whole, 1.0, links["weights"].size * across),
        experts / np.where(is_whole, 1.0, links["expert_weights"].size * across),
    )


def _traffic(
    w: Workload,
    group_tokens: Floats,
    busiest: Floats,
    layer_share: Floats,
    dense: Floats,
    experts: Floats,
    vocabulary: Floats,
) -> dict[str, Traffic]:
    """Return every kind of communication of a step (book 5.2, last table), at the full bandwidth of its links.

    group_tokens: of a step on a chip, before a tensor axis shards anything.  busiest, layer_share: layers of the stage
    that has most, and their share of all.  dense, experts, vocabulary: weights that a chip works with.
    """
    model, mesh, train = w.model, w.mesh, w.training
    links, dcn = mesh.links, mesh.dcn
    micro, gradient_bytes = train.micro_batches, train.gradient_bytes
    none = train.sharding == SHARDING.index("none")
    recomputes = np.where((train.remat == REMAT.index("full")) | (train.remat == REMAT.index("offload")), 1.0, 0.0)
    sharded = train.sharding == SHARDING.index("fsdp")
    zero1 = train.sharding == SHARDING.index("zero1")
    passes = busiest * micro

    def issued(group: str, inside: Transfer, dcn_s: Floats, across: Links, calls: Floats, sent: Floats) -> Traffic:
        on = links[group]
        called = moved(calls, np.where((on.size > 1) | (across.size > 1), 1.0, 0.0))
        return Traffic(group, inside.inside_s, inside.between_s, dcn_s, called, on.size, on.domains, sent)

    def gathered(group: str, across: Links, array_bytes: Floats, calls: Floats) -> Traffic:
        """Gathers or scatters of `array_bytes` in all; across slices each chip moves what it holds of them."""
        on = links[group]
        inside, dcn_s = gather_transfer(on, array_bytes, calls), gather_transfer(across, array_bytes).time_s / on.size
        return issued(group, inside, dcn_s, across, calls, moved(array_bytes, _others(on)))

    # Bytes of whole arrays on the weights groups.  FSDP: gather twice and scatter the gradient, every micro-batch;
    # ZeRO-1: scatter the gradient and gather the weights, once; replicated: all-reduce the gradient, once.
    rounds = np.where(
        sharded,
        micro * (GATHERS * WEIGHT_BYTES + gradient_bytes),
        np.where(zero1, WEIGHT_BYTES + gradient_bytes, 2.0 * gradient_bytes),
    )
    calls = np.where(sharded, (GATHERS + 1.0) * passes, 2.0 * busiest)
    once = {"reduced": none.astype(np.float64), "sharded": zero1.astype(np.float64)}
    weights = gathered("weights", dcn["weights"], rounds * (dense + vocabulary), calls)
    expert_calls = np.where(experts > 0, calls, 0.0)
    expert_weights = gathered("expert_weights", dcn["weights"], rounds * experts, expert_calls)
    # Pure data parallelism sums what the sharded groups left to each chip.
    owned_dense, owned_experts = _owned_weights(w, dense + vocabulary, experts)
    inside_dense = owned_dense / np.where(none, links["weights"].size, 1.0)
    inside_experts = owned_experts / np.where(none, links["expert_weights"].size, 1.0)
    summed = 2.0 * gradient_bytes * (owned_dense + owned_experts)
    across = gather_transfer(dcn["gradients"], 2.0 * gradient_bytes * inside_dense).time_s
    across = across + gather_transfer(dcn["expert_gradients"], 2.0 * gradient_bytes * inside_experts).time_s
    across = across / np.where(links["replica"].size > 1, links["replica"].size, 1.0)
    replica = gathered("replica", dcn["gradients"], summed, 2.0 * busiest)

    # Tensor: gather and scatter the activations around both blocks, forward, backward, and forward again if recomputed.
    activation = group_tokens * busiest * model.d_model * ACTIVATION_BYTES
    often = 8.0 + 3.0 * recomputes
    tensor = gathered("model", dcn["model"], often * activation, often * passes)
    # Sequence: keys and values gathered forward and backward, their gradient scattered (or passed round a ring: equal).
    kv = group_tokens * mesh.seq * busiest * model.kv_width / mesh.model * ACTIVATION_BYTES
    often = 3.0 + recomputes
    seq = gathered("seq", dcn["seq"], often * kv, often * passes)
    # Experts: out and back, forward and backward.
    routed = group_tokens * model.moe_layers * layer_share * model.experts_per_token * model.d_model * ACTIVATION_BYTES
    routed = routed / mesh.model
    times = 4.0 + 2.0 * recomputes
    # A GPU sends a token once to each chip, and once to each NVLink domain, that holds any of its experts.
    chosen = np.maximum(model.experts_per_token, 1.0)
    to_chips = np.where(w.chip.gpu > 0, _distinct(links["expert"].size, chosen) / chosen, 1.0)
    to_domains = _distinct(links["expert"].domains, chosen) / chosen
    expert = issued(
        "expert",
        all_to_all_transfer(links["expert"], times * routed * to_chips, times * routed * to_domains),
        all_to_all_transfer(dcn["expert"], times * routed).time_s,
        dcn["expert"],
        times * (model.moe_layers * layer_share * micro),
        moved(times * routed * to_chips, _others(links["expert"])),
    )
    boundary = 2.0 * group_tokens * model.d_model * ACTIVATION_BYTES / mesh.model
    boundary = boundary * np.where(mesh.pipeline > 1, train.virtual_stages, 0.0)
    pipeline = issued(
        "pipeline",
        permute_transfer(links["pipeline"], boundary),
        permute_transfer(dcn["pipeline"], boundary).time_s,
        dcn["pipeline"],
        2.0 * micro * train.virtual_stages,
        boundary * (links["pipeline"].size > 1),
    )
    kinds = (
        replace(weights, **once),
        replace(expert_weights, **once),
        replace(replica, dcn_s=across, reduced=np.ones(1)),
        tensor,
        seq,
        # Megatron-Core's schedule that hides these exchanges excludes full recomputation (transformer_config.py).
        replace(expert, serial=np.where(w.chip.gpu > 0, recomputes, 0.0)),
        replace(pipeline, ranks=mesh.pipeline),
    )
    return {kind.group: kind for kind in kinds}


def _distinct(bins: Floats, draws: Floats) -> Floats:
    """Expected number of distinct bins that `draws` uniform draws hit."""
    return bins * (1.0 - (1.0 - 1.0 / bins) ** draws)


def _others(links: Links) -> Floats:
    """Of an array that a group shares, the part that a chip does not hold itself."""
    return np.asarray(1.0 - 1.0 / links.size)


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
    tokens_per_chip: Floats
    work: Workload

    def executed_flops(self, again: float, attention: bool = True) -> float:
        """Return the FLOPs that a chip executes of a single configuration.  again: how often the forward pass is
        recomputed; attention: whether the kernels of attention count, which compilers often do not."""
        chip = self.work.chip
        flops = (self.dense_s + self.experts_s + again * (self.dense_forward_s + self.experts_forward_s)) * chip.peak
        scores = self.scores_s + again * self.scores_forward_s if attention else 0.0
        return float((flops + (self.head_s + scores) * chip.peak_bf16).reshape(-1)[0])


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
    owned_dense, owned_experts = _owned_weights(w, dense_params + vocabulary, expert_params)
    owned = owned_dense + owned_experts
    # Read forward and backward, gradients written and, over micro-batches, added up.
    sums = train.gradient_sum_bytes
    weight_bytes = micro * local * (2.0 * WEIGHT_BYTES + np.where(micro > 1, 2.0 * sums, train.gradient_bytes))
    optimizer_bytes = owned * (2.0 * MASTER_BYTES + 2.0 * train.moment_bytes + sums + WEIGHT_BYTES)
    width = (model.traffic_model + model.traffic_sharded) / mesh.model
    forward_bytes = group_tokens * busiest * width * ACTIVATION_BYTES
    logits_bytes = work * model.vocab * (ACTIVATION_BYTES + 3.0 * 4.0) * head_share
    host_bytes = np.where(train.remat == REMAT.index("offload"), 2.0 * work * busiest * model.d_model * 2.0, 0.0)

    # Only full memory that makes a program stall, or recompute what nobody asked for, costs time.
    used = memory.per_chip(w) if np.any((train.stalls_when_full > 0) | (train.remat_open > 0)) else None

    # An unfused kernel computes all scores, the masked half too.
    scores = group_tokens * train.seq_len * model.score_heads / mesh.model * busiest
    softmax = np.where(train.unfused_attention > 0, scores * UNFUSED_SCORE_BYTES / bandwidth, 0.0)
    terms_traffic = _traffic(w, group_tokens, busiest, layer_share, dense_params, expert_params, vocabulary)
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
        memory_share=np.where(train.stalls_when_full > 0, used.pressure, 0.0) if used is not None else np.zeros(1),
        recomputed=used.recomputed if used is not None else np.zeros(1),
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
