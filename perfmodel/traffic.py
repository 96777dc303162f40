"""The communication of a step by kind of parallelism: seconds at peak, bytes and calls, per chip (book 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfmodel.arrays import Floats
from perfmodel.topology import Links, all_to_all_transfer, gather_transfer, permute_transfer
from perfmodel.workload import ACTIVATION_BYTES, REMAT, SHARDING, WEIGHT_BYTES, Workload


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: seconds at full bandwidth, and calls per step.

    group: the links it runs on (key of MeshNumbers.links), overlap: which overlap efficiency applies to it.  ici_s: on
    the links inside a slice or an NVLink domain; network_s: between NVLink domains, at the same time; dcn_s: across
    slices.  calls: on the critical path of the group; ranks: chips of the group, domains: NVLink domains it spans.
    reduced: 1 where it is one all-reduce of unsharded gradients per step, whatever the micro-batches; sharded: 1 where
    gradients and weights of a sharded optimizer move once per step.  sent_bytes: by a chip inside the slice, per step.
    """

    group: str
    overlap: str
    ici_s: Floats
    network_s: Floats
    dcn_s: Floats
    calls: Floats
    ranks: Floats
    domains: Floats
    reduced: Floats
    sharded: Floats
    sent_bytes: Floats


def distinct(bins: Floats, draws: Floats) -> Floats:
    """Expected number of distinct bins that `draws` uniform draws hit."""
    return bins * (1.0 - (1.0 - 1.0 / bins) ** draws)


def gather(
    group: str,
    overlap: str,
    inside: Links,
    across: Links,
    array_bytes: Floats,
    calls: Floats,
    reduced: np.ndarray | bool = False,
    sharded: np.ndarray | bool = False,
) -> Traffic:
    """Gathers or scatters of `array_bytes` in all; across slices each chip moves what it holds of them."""
    moved = gather_transfer(inside, array_bytes, calls)
    return Traffic(
        group=group,
        overlap=overlap,
        ici_s=moved.inside_s,
        network_s=moved.between_s,
        dcn_s=gather_transfer(across, array_bytes).time_s / inside.size,
        calls=np.where((inside.size > 1) | (across.size > 1), calls, 0.0),
        ranks=inside.size,
        domains=inside.domains,
        reduced=np.asarray(reduced, dtype=np.float64),
        sharded=np.asarray(sharded, dtype=np.float64),
        sent_bytes=array_bytes * others(inside),
    )


def others(links: Links) -> Floats:
    """Of an array that a group shares, the part that a chip does not hold itself."""
    return np.asarray(1.0 - 1.0 / links.size)


#: How often a layer's weights are gathered where they are sharded: for the forward and for the backward pass.
GATHERS = 2.0


def dense_shards(w: Workload) -> Floats:
    """Ways in which non-expert weights are sharded where weight sharding is on."""
    ici = w.mesh.links["weights"].size
    return ici * w.mesh.dcn_fsdp


def expert_shards(w: Workload) -> Floats:
    return w.mesh.links["expert_weights"].size * w.mesh.dcn_fsdp


def step_traffic(
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
    micro, gradient_bytes = train.micro_batches, train.gradient_bytes
    none = train.sharding == SHARDING.index("none")
    recomputes = np.where((train.remat == REMAT.index("full")) | (train.remat == REMAT.index("offload")), 1.0, 0.0)
    sharded = train.sharding == SHARDING.index("fsdp")
    zero1 = train.sharding == SHARDING.index("zero1")
    passes = busiest * micro
    dense_all = dense + vocabulary

    # Bytes of whole arrays on the weights groups.  FSDP: gather twice and scatter the gradient, every micro-batch;
    # ZeRO-1: scatter the gradient and gather the weights, once; replicated: all-reduce the gradient, once.
    rounds = np.where(
        sharded,
        micro * (GATHERS * WEIGHT_BYTES + gradient_bytes),
        np.where(zero1, WEIGHT_BYTES + gradient_bytes, 2.0 * gradient_bytes),
    )
    calls = np.where(sharded, (GATHERS + 1.0) * passes, 2.0 * busiest)
    weights, routed_weights = links["weights"], links["expert_weights"]
    expert_calls = np.where(experts > 0, calls, 0.0)
    across_slices = dcn["weights"]
    traffic = {
        "weights": gather("weights", "weights", weights, across_slices, rounds * dense_all, calls, none, zero1),
        "expert_weights": gather(
            "expert_weights", "weights", routed_weights, across_slices, rounds * experts, expert_calls, none, zero1
        ),
    }
    # Pure data parallelism sums what the sharded groups left to each chip.
    owned_dense = dense_all / np.where(none, 1.0, dense_shards(w))
    owned_experts = experts / np.where(none, 1.0, expert_shards(w))
    inside_dense = owned_dense / np.where(none, links["weights"].size, 1.0)
    inside_experts = owned_experts / np.where(none, links["expert_weights"].size, 1.0)
    summed = 2.0 * gradient_bytes * (owned_dense + owned_experts)
    replica = gather("replica", "weights", links["replica"], dcn["gradients"], summed, 2.0 * busiest, np.ones(1))
    across = gather_transfer(dcn["gradients"], 2.0 * gradient_bytes * inside_dense).time_s
    across = across + gather_transfer(dcn["expert_gradients"], 2.0 * gradient_bytes * inside_experts).time_s
    across = across / np.where(links["replica"].size > 1, links["replica"].size, 1.0)
    traffic["replica"] = replace(replica, dcn_s=across)

    # Tensor: gather and scatter the activations around both blocks, forward, backward, and forward again if recomputed.
    activation = group_tokens * busiest * model.d_model * ACTIVATION_BYTES
    often = 8.0 + 3.0 * recomputes
    traffic["model"] = gather("model", "tensor", links["model"], dcn["model"], often * activation, often * passes)
    # Sequence: keys and values gathered forward and backward, their gradient scattered (or passed round a ring: equal).
    kv = group_tokens * mesh.seq * busiest * model.kv_width / mesh.model * ACTIVATION_BYTES
    often = 3.0 + recomputes
    traffic["seq"] = gather("seq", "seq", links["seq"], dcn["seq"], often * kv, often * passes)
    # Experts: out and back, forward and backward.
    routed = group_tokens * model.moe_layers * layer_share * model.experts_per_token * model.d_model * ACTIVATION_BYTES
    routed = routed / mesh.model
    moe_passes = model.moe_layers * layer_share * micro
    times = 4.0 + 2.0 * recomputes
    expert_links = links["expert"]
    # A GPU sends a token once to each chip, and once to each NVLink domain, that holds any of its experts.
    chosen = np.maximum(model.experts_per_token, 1.0)
    gpu = w.chip.gpu > 0
    to_chips = np.where(gpu, distinct(expert_links.size, chosen) / chosen, 1.0)
    to_domains = distinct(expert_links.domains, chosen) / chosen
    dispatched = all_to_all_transfer(expert_links, times * routed * to_chips, times * routed * to_domains)
    traffic["expert"] = Traffic(
        "expert",
        "expert",
        dispatched.inside_s,
        dispatched.between_s,
        all_to_all_transfer(dcn["expert"], times * routed).time_s,
        np.where((expert_links.size > 1) | (dcn["expert"].size > 1), times * moe_passes, 0.0),
        expert_links.size,
        expert_links.domains,
        np.zeros(1),
        np.zeros(1),
        times * routed * to_chips * others(expert_links),
    )
    boundary = 2.0 * group_tokens * model.d_model * ACTIVATION_BYTES / mesh.model
    boundary = boundary * np.where(mesh.pipeline > 1, train.virtual_stages, 0.0)
    stages = links["pipeline"]
    passed = permute_transfer(stages, boundary)
    traffic["pipeline"] = Traffic(
        "pipeline",
        "pipeline",
        passed.inside_s,
        passed.between_s,
        permute_transfer(dcn["pipeline"], boundary).time_s,
        np.where(mesh.pipeline > 1, 2.0 * micro * train.virtual_stages, 0.0),
        mesh.pipeline,
        stages.domains,
        np.zeros(1),
        np.zeros(1),
        boundary * (stages.size > 1),
    )
    return traffic
