"""What a step asks of each resource, before any efficiency: seconds at peak, bytes, calls.  Per chip and step.

Source: scaling book chapters 4 (FLOPs), 5 (collectives of each kind of parallelism, table in 5.2).  All values are
arrays that broadcast over candidates; the efficiencies of `perfmodel.step_time` only scale and combine them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel import accounting
from perfmodel.topology import Floats, Links
from perfmodel.workload import ACTIVATION_BYTES, MASTER_BYTES, REMAT, SHARDING, WEIGHT_BYTES, Workload

#: Keys per block of a fused attention kernel: MaxText's splash attention default, FlashAttention's tile.
TPU_ATTENTION_BLOCK = 512.0
GPU_ATTENTION_BLOCK = 128.0
#: Head size up to which a smaller head saves no time.
HEAD_LANES = 128.0
#: Gradients cross the wires in the compute precision, and are added up in float32.
GRADIENT_BYTES = 2.0
GRADIENT_SUM_BYTES = 4.0
#: How often a layer's weights are gathered where they are sharded: for the forward and for the backward pass.
GATHERS = 2.0


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: seconds at full link bandwidth inside the slice and across, and calls per step.

    group: the links it runs on (key of MeshNumbers.links), overlap: which overlap efficiency applies to it.
    """

    group: str
    overlap: str
    ici_s: Floats
    dcn_s: Floats
    calls: Floats


@dataclass(frozen=True)
class Terms:
    """Seconds at peak of the work with weights, of grouped experts, of attention kernels, of the vocabulary; HBM; host.

    Each *_forward part is what a full recomputation repeats.  rows: tokens per micro-batch that one chip multiplies;
    expert_rows: the same per expert.  heads_narrow, mlp_narrow, expert_narrow: width of a chip's share of the heads, of
    the MLP, of an expert; mlp_share: of the work with dense weights that is the MLP's.  layer_passes: layers ×
    micro-batches a chip runs through forward.  scores_padding: how much more an attention kernel computes than the
    scores that count.  bubble: idle share of the pipeline relative to its busy time.
    """

    dense_s: Floats
    dense_forward_s: Floats
    experts_s: Floats
    experts_forward_s: Floats
    scores_s: Floats
    scores_forward_s: Floats
    scores_padding: Floats
    head_s: Floats
    rows: Floats
    heads_narrow: Floats
    mlp_narrow: Floats
    mlp_share: Floats
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
    doublings_of_hosts: Floats
    doublings_of_slices: Floats
    remat: np.ndarray
    model_flops_per_chip: Floats
    tokens_per_chip: Floats
    peak_bf16: Floats
    software_year: Floats


def step_terms(w: Workload) -> Terms:
    """All terms of a step.  Arrays of the broadcast shape of the workload's fields, or of a shape that broadcasts."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    tokens = train.global_batch * train.seq_len
    shards = mesh.replica * mesh.data * mesh.fsdp * mesh.seq * mesh.expert
    group_tokens = tokens / shards
    micro = train.micro_batches
    rows = group_tokens / micro
    stages = mesh.pipeline
    virtual = np.where(stages > 1, train.virtual_stages, 1.0)
    slots = stages * virtual
    # The slowest stage sets the pace.  Layers that do not divide leave slots for embedding and head.
    even = np.mod(model.layers, slots) == 0
    uneven_layers = np.ceil((model.layers + 2.0) / slots) * virtual
    busiest = np.where(even, model.layers / stages, np.minimum(uneven_layers, model.layers))
    layer_share = busiest / model.layers
    head_share = np.where(even | (stages == 1), 1.0, 0.0)
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
    dense_params, expert_params, vocabulary = _local_parameters(w, layer_share, head_share)
    local = dense_params + expert_params + vocabulary
    sharding = train.sharding
    owned_dense = (dense_params + vocabulary) / np.where(sharding == SHARDING.index("none"), 1.0, _dense_shards(w))
    owned_experts = expert_params / np.where(sharding == SHARDING.index("none"), 1.0, _expert_shards(w))
    owned = owned_dense + owned_experts
    # Read forward and backward, gradients written and, over micro-batches, added up.
    weight_bytes = micro * local * (2.0 * WEIGHT_BYTES + np.where(micro > 1, 2.0 * GRADIENT_SUM_BYTES, GRADIENT_BYTES))
    optimizer_bytes = owned * (2.0 * MASTER_BYTES + 2.0 * train.moment_bytes + GRADIENT_SUM_BYTES + WEIGHT_BYTES)
    width = (model.traffic_model + model.traffic_sharded) / mesh.model
    forward_bytes = group_tokens * busiest * width * ACTIVATION_BYTES
    logits_bytes = work * model.vocab * (ACTIVATION_BYTES + 3.0 * 4.0) * head_share
    host_bytes = np.where(train.remat == REMAT.index("offload"), 2.0 * work * busiest * model.d_model * 2.0, 0.0)

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
        head_s=head,
        rows=rows,
        heads_narrow=model.heads_narrow / mesh.model,
        mlp_narrow=model.mlp_narrow / mesh.model,
        mlp_share=model.mlp_share,
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
        doublings_of_hosts=np.log2(np.maximum(chip.hosts, 1.0)),
        doublings_of_slices=np.log2(np.maximum(_slices(w), 1.0)),
        remat=train.remat,
        model_flops_per_chip=tokens * model.model_flops / chip.chips,
        tokens_per_chip=tokens / chip.chips,
        peak_bf16=chip.peak_bf16,
        software_year=train.software_year,
    )


def _scores_padding(w: Workload) -> Floats:
    """What an attention kernel computes over what counts.

    Heads are padded to 128 (a TPU's lanes; on a GPU the exponentials of a score take as long whatever the head size).
    Kernels work on blocks of queries: below the causal diagonal half a block more, beside a window a block more.
    """
    model = w.model
    if_gpu = w.chip.gpu > 0
    padded = np.ceil(model.qk_width / HEAD_LANES) + np.ceil(model.v_width / HEAD_LANES)
    heads = padded * HEAD_LANES / (model.qk_width + model.v_width)
    heads = np.where(if_gpu, np.maximum(1.0, 2.0 * HEAD_LANES / (model.qk_width + model.v_width)), heads)
    block = np.minimum(np.where(if_gpu, GPU_ATTENTION_BLOCK, TPU_ATTENTION_BLOCK), w.training.seq_len / 2.0)
    more = (model.flops_scores_per_local_key + model.flops_scores_per_global_key / 2.0) * block
    return np.asarray(heads * (1.0 + more / np.maximum(model.flops_scores, 1.0)))


def _slices(w: Workload) -> Floats:
    mesh = w.mesh
    slices = mesh.dcn_replica * mesh.dcn_data * mesh.dcn_fsdp * mesh.dcn_seq
    return np.asarray(slices * mesh.dcn_model * mesh.dcn_expert * mesh.dcn_pipeline)


def _dense_shards(w: Workload) -> Floats:
    """Ways in which non-expert weights are sharded where weight sharding is on."""
    ici = w.mesh.links["weights"].size
    return ici * w.mesh.dcn_fsdp


def _expert_shards(w: Workload) -> Floats:
    return w.mesh.links["expert_weights"].size * w.mesh.dcn_fsdp


def _local_parameters(w: Workload, layer_share: Floats, head_share: Floats) -> tuple[Floats, Floats, Floats]:
    """Parameters a chip works with in full: its stage, its tensor share, its experts."""
    split = w.mesh.model
    dense = w.model.params_dense * layer_share / split
    experts = w.model.params_experts * layer_share / (split * w.mesh.expert)
    return dense, experts, w.model.params_vocabulary / split / np.where(w.mesh.pipeline > 1, 2.0, 1.0)


def _traffic(
    w: Workload,
    group_tokens: Floats,
    busiest: Floats,
    layer_share: Floats,
    dense: Floats,
    experts: Floats,
    vocabulary: Floats,
) -> dict[str, Traffic]:
    """Every kind of communication of a step (book 5.2, last table), at the full bandwidth of its links."""
    model, mesh, train = w.model, w.mesh, w.training
    links, dcn = mesh.links, mesh.dcn
    micro = train.micro_batches
    recomputes = np.where((train.remat == REMAT.index("full")) | (train.remat == REMAT.index("offload")), 1.0, 0.0)
    sharded = train.sharding == SHARDING.index("fsdp")
    zero1 = train.sharding == SHARDING.index("zero1")
    passes = busiest * micro
    dense_all = dense + vocabulary

    # Bytes of whole arrays on the weights groups.  FSDP: gather twice and scatter the gradient, every micro-batch;
    # ZeRO-1: scatter the gradient and gather the weights, once; replicated: all-reduce the gradient, once.
    rounds = np.where(
        sharded,
        micro * (GATHERS * WEIGHT_BYTES + GRADIENT_BYTES),
        np.where(zero1, WEIGHT_BYTES + GRADIENT_BYTES, 2 * 2.0),
    )
    calls = np.where(sharded, (GATHERS + 1.0) * passes, 2.0 * busiest)
    traffic = {
        "weights": _gather("weights", "weights", links["weights"], dcn["weights"], rounds * dense_all, calls),
        "expert_weights": _gather(
            "expert_weights",
            "weights",
            links["expert_weights"],
            dcn["weights"],
            rounds * experts,
            np.where(experts > 0, calls, 0.0),
        ),
    }
    # Pure data parallelism sums what the sharded groups left to each chip.
    none = train.sharding == SHARDING.index("none")
    owned_dense = dense_all / np.where(none, 1.0, _dense_shards(w))
    owned_experts = experts / np.where(none, 1.0, _expert_shards(w))
    inside_dense = owned_dense / np.where(none, links["weights"].size, 1.0)
    inside_experts = owned_experts / np.where(none, links["expert_weights"].size, 1.0)
    replica = _gather(
        "replica",
        "weights",
        links["replica"],
        dcn["gradients"],
        2.0 * GRADIENT_BYTES * (owned_dense + owned_experts),
        2.0 * busiest,
    )
    across = (
        2.0
        * GRADIENT_BYTES
        * (
            inside_dense * dcn["gradients"].gather_s_per_byte
            + inside_experts * dcn["expert_gradients"].gather_s_per_byte
        )
    )
    across = across / np.where(links["replica"].size > 1, links["replica"].size, 1.0)
    traffic["replica"] = Traffic("replica", "weights", replica.ici_s, across, replica.calls)

    # Tensor: gather and scatter the activations around both blocks, forward, backward, and forward again if recomputed.
    activation = group_tokens * busiest * model.d_model * ACTIVATION_BYTES
    traffic["model"] = _gather(
        "model",
        "tensor",
        links["model"],
        dcn["model"],
        (8.0 + 3.0 * recomputes) * activation,
        (8.0 + 3.0 * recomputes) * passes,
    )
    # Sequence: keys and values gathered forward and backward, their gradient scattered (or passed round a ring: equal).
    kv = group_tokens * mesh.seq * busiest * model.kv_width / mesh.model * ACTIVATION_BYTES
    traffic["seq"] = _gather(
        "seq", "seq", links["seq"], dcn["seq"], (3.0 + recomputes) * kv, (3.0 + recomputes) * passes
    )
    # Experts: out and back, forward and backward.
    routed = group_tokens * model.moe_layers * layer_share * model.experts_per_token * model.d_model * ACTIVATION_BYTES
    routed = routed / mesh.model
    moe_passes = model.moe_layers * layer_share * micro
    times = 4.0 + 2.0 * recomputes
    expert_links = links["expert"]
    # A GPU sends a token once to each chip, and once to each NVLink domain, that holds any of its experts.
    chosen = np.maximum(model.experts_per_token, 1.0)
    gpu = w.chip.gpu > 0
    inside = expert_links.all_to_all_s_per_byte * np.where(gpu, _distinct(expert_links.size, chosen) / chosen, 1.0)
    outside = expert_links.all_to_all_out_s_per_byte * _distinct(expert_links.domains, chosen) / chosen
    traffic["expert"] = Traffic(
        "expert",
        "expert",
        times * routed * np.maximum(inside, outside),
        times * routed * dcn["expert"].all_to_all_s_per_byte,
        np.where((expert_links.size > 1) | (dcn["expert"].size > 1), times * moe_passes, 0.0),
    )
    boundary = 2.0 * group_tokens * model.d_model * ACTIVATION_BYTES / mesh.model
    boundary = boundary * np.where(mesh.pipeline > 1, train.virtual_stages, 0.0)
    traffic["pipeline"] = Traffic(
        "pipeline",
        "pipeline",
        boundary * links["pipeline"].permute_s_per_byte,
        boundary * dcn["pipeline"].permute_s_per_byte,
        np.where(mesh.pipeline > 1, 2.0 * micro * train.virtual_stages, 0.0),
    )
    return traffic


def _distinct(bins: Floats, draws: Floats) -> Floats:
    """Expected number of distinct bins that `draws` uniform draws hit."""
    return bins * (1.0 - (1.0 - 1.0 / bins) ** draws)


def _gather(group: str, overlap: str, inside: Links, across: Links, array_bytes: Floats, calls: Floats) -> Traffic:
    """Gathers or scatters of `array_bytes` in all; across slices each chip moves what it holds of them."""
    ici = np.where(inside.size > 1, np.maximum(array_bytes * inside.gather_s_per_byte, calls * inside.latency_s), 0.0)
    dcn = array_bytes * across.gather_s_per_byte / inside.size
    return Traffic(group, overlap, ici, dcn, np.where((inside.size > 1) | (across.size > 1), calls, 0.0))
