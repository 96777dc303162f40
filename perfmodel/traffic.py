"""The communication of a step by kind of parallelism: seconds at peak, bytes and calls, per chip (book 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from perfmodel.arrays import Floats
from perfmodel.topology import Links, Transfer, all_to_all_transfer, gather_transfer, permute_transfer
from perfmodel.workload import ACTIVATION_BYTES, REMAT, SHARDING, WEIGHT_BYTES, Workload


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: seconds at full bandwidth, and calls per step.

    group: the links it runs on, a key of GROUPS.  ici_s: on the links inside a slice or an NVLink domain; network_s:
    between NVLink domains, at the same time; dcn_s: across slices.  calls: on the critical path of the group; ranks:
    chips of the group, domains: NVLink domains it spans.  reduced: 1 where it is one all-reduce of unsharded gradients
    per step, whatever the micro-batches; sharded: 1 where gradients and weights of a sharded optimizer move once per
    step.  sent_bytes: by a chip inside the slice, per step.
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


#: How often a layer's weights are gathered where they are sharded: for the forward and for the backward pass.
GATHERS = 2.0


def owned_weights(w: Workload, dense: Floats, experts: Floats) -> tuple[Floats, Floats]:
    """Return which of so many dense and expert weights a chip owns, where they are sharded."""
    is_whole = w.training.sharding == SHARDING.index("none")
    links, across = w.mesh.links, w.mesh.dcn_fsdp
    return (
        dense / np.where(is_whole, 1.0, links["weights"].size * across),
        experts / np.where(is_whole, 1.0, links["expert_weights"].size * across),
    )


def step_traffic(
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
        called = np.where((on.size > 1) | (across.size > 1), calls, 0.0)
        return Traffic(group, inside.inside_s, inside.between_s, dcn_s, called, on.size, on.domains, sent)

    def gathered(group: str, across: Links, array_bytes: Floats, calls: Floats) -> Traffic:
        """Gathers or scatters of `array_bytes` in all; across slices each chip moves what it holds of them."""
        on = links[group]
        inside, dcn_s = gather_transfer(on, array_bytes, calls), gather_transfer(across, array_bytes).time_s / on.size
        return issued(group, inside, dcn_s, across, calls, array_bytes * _others(on))

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
    owned_dense, owned_experts = owned_weights(w, dense + vocabulary, experts)
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
        times * routed * to_chips * _others(links["expert"]),
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
        expert,
        replace(pipeline, ranks=mesh.pipeline),
    )
    return {kind.group: kind for kind in kinds}


def _distinct(bins: Floats, draws: Floats) -> Floats:
    """Expected number of distinct bins that `draws` uniform draws hit."""
    return bins * (1.0 - (1.0 - 1.0 / bins) ** draws)


def _others(links: Links) -> Floats:
    """Of an array that a group shares, the part that a chip does not hold itself."""
    return np.asarray(1.0 - 1.0 / links.size)
