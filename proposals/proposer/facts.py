"""Facts of a proposal by name: what conditions of passages and sentences compare, and what sentences print.

`facts` is where to start.  Those of a configuration are the proposed one's, and with `was_` before it those of the one
that ran; axes by role with `fsdp` as data, tokens and sequences of an optimizer step, bounds by `perfmodel.roofline` in
the training precision.  Shares are of the step, as observed.  None where something is missing: no condition on it
holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import log2

import numpy as np

from experiments.sentences import Value
from knowledge.supports import Quantity
from perfmodel import accounting, memory, roofline
from perfmodel.config import ExperimentConfig, micro_batches, missing_facts
from perfmodel.workload import chip_of, from_config
from proposals.candidate import Candidate, candidate
from proposals.proposer.case import Case

Fact = Quantity | Value
Facts = Mapping[str, Fact | Callable[[], Fact]]

BEFORE = "was_"
#: Facts of the chip, besides bounds: nothing is known of them where a run was recorded on another one than its
#: configuration names.
_OF_CHIP = frozenset({"chip", "kind", "domain", "domains"})
#: A collective that carries less than a link moves meanwhile waits for the hop (TPU, `latency-bound`).
HOP_S = 1e-6
#: Parts of `Observed` of which the step's share is compared.
_SHARES = {
    "tensor_share": ("tensor",), "weights_share": ("weights",), "sequence_share": ("sequence",),
    "expert_share": ("expert",), "dcn_share": ("dcn",), "weights_hbm_share": ("weights_hbm",),
    "optimizer_share": ("optimizer",), "attention_share": ("attention",), "compute_share": ("products", "attention"),
}  # fmt: skip
_KPIS = {
    "communication_share": "communication", "duty_cycle": "duty_cycle", "flops_utilization": "flops_utilization",
    "idle_share": "idle", "measured_memory_share": "memory_peak_share",
}  # fmt: skip
#: Settings that buy memory, by the name under which it is asked what would be needed without.
_BUYS_MEMORY = {
    "remat": ("remat",), "weight_sharding": ("weight_sharding",), "accumulation": ("grad_accum", "micro_batch"),
}  # fmt: skip


def value_of(facts: Facts, name: str) -> Quantity:
    """The fact of a name as conditions compare it.  Raises KeyError where there is no such fact."""
    fact = facts[name]
    fact = fact() if callable(fact) else fact
    return fact.value if isinstance(fact, Value) else fact


def facts(case: Case) -> dict[str, Fact | Callable[[], Fact]]:
    """Facts of a proposal that passages compare."""
    known: dict[str, Fact | Callable[[], Fact]] = {}
    for prefix, config in (("", case.proposed), (BEFORE, case.config)):
        for name, fact in of_config(config).items():
            hidden = case.observed.evidence.stand_in and (name in _OF_CHIP or name.endswith("_bound"))
            known[prefix + name] = None if hidden else fact
    return known | _of_run(case)


def of_config(config: ExperimentConfig) -> dict[str, Quantity]:
    """Facts of a configuration."""
    hardware, mesh, model, training = config.hardware, config.mesh, config.model, config.training
    batch, length, tokens = training.global_batch, training.seq_len, training.global_batch_tokens
    stages, count = mesh.size("pipeline"), micro_batches(training, mesh)
    kind = chip_of(hardware).kind
    domain = float(hardware.topology[0]) if kind == "gpu" else None
    per_rank = tokens / mesh.token_shards if tokens else None
    slots = stages * training.virtual_stages
    return {
        "chips": float(hardware.chips),
        "slices": float(hardware.slices),
        "chip": hardware.chip,
        "kind": kind,
        "domain": domain,  # GPUs of an NVLink domain
        "domains": hardware.chips / domain if domain else None,
        # `equal` where all axes lie on links of one kind: ICI of one slice, NVLink of one domain.
        "links": "equal" if (hardware.chips == domain if domain else hardware.slices == 1) else "unequal",
        "shape": "unknown" if model is None else "known",
        "data": float(mesh.size("data", "fsdp")),
        **{role: float(mesh.size(role)) for role in ("seq", "model", "expert", "pipeline")},
        "tensor_group": float(mesh.size("model", "expert")),
        "batch_shards": float(mesh.batch_shards),
        "experts": None if model is None else float(model.experts),
        "remat": training.remat,
        "weight_sharding": training.weight_sharding,
        "virtual_stages": float(training.virtual_stages),
        "global_batch": float(batch) if batch else None,
        "grad_accum": float(training.grad_accum),
        "micro_batch": float(training.micro_batch) if training.micro_batch else None,
        "accumulation": count,  # micro-batches per optimizer step
        "sequence_length": float(length) if length else None,
        "tokens_per_chip": tokens / hardware.chips if tokens else None,
        "tokens_per_rank": per_rank,
        "tokens_per_micro_batch": per_rank / count if per_rank else None,
        "tokens_per_slice": tokens / hardware.slices if tokens else None,
        "tokens_per_shard": length / mesh.size("seq") if length else None,
        "sequences_per_rank": batch / mesh.batch_shards if batch else None,
        "micro_batches_per_stage": count / stages,
        # Share of a pipeline's step in which a stage fills or drains.
        "bubble": (stages - 1) / (training.virtual_stages * count + stages - 1),
        "chunks": None if model is None else "uneven" if model.layers % slots else "whole",
        **_widths(config),
        **_bounds(config),
    }


def _widths(config: ExperimentConfig) -> dict[str, Quantity]:
    """Widths of the model, and what of its attention falls on a byte that is sent."""
    model, mesh, length = config.model, config.mesh, config.training.seq_len
    if model is None:
        return dict.fromkeys(("shard_width", "layer_width", "expert_width", "kv_intensity"))
    count = accounting.parameters(model)
    used = count.layer_dense_mlp
    if model.experts:
        used = count.layer_experts * model.experts_per_token / model.experts + count.layer_shared_experts
    plain = length and model.attention != "mla" and not model.sliding_window
    return {
        "shard_width": None if model.experts else model.d_ff / mesh.size("model"),
        # Parameters of a layer that a token passes through, over d_model; of a mixture those of its mixture layers.
        "layer_width": (count.layer_attention + used) / model.d_model,
        "expert_width": float(accounting.expert_width(model)) if model.experts else None,
        # FLOPs of causal attention per byte of keys and values that a sequence axis gathers.
        "kv_intensity": length / mesh.size("seq") * model.heads / model.kv_heads / 2 if plain and length else None,
    }


def _bounds(config: ExperimentConfig) -> dict[str, Quantity]:
    """What hides a transfer, by `roofline`.  Bounds on tokens are None for mixtures, whose weights see fewer, and where
    the model is not known."""
    hardware, mesh, wide = config.hardware, config.mesh, config.training.precision
    part, inside, tokens = chip_of(hardware), hardware.topology[0], config.training.global_batch_tokens
    tpu = part.kind == "tpu"
    width = float(config.model.d_ff) if config.model is not None and not config.model.experts else None
    dense = width is not None
    if tpu:
        data = roofline.data_tokens(part, part.ici_axes, wide)
    elif hardware.chips <= inside:
        data = roofline.nvlink_intensity(part, wide)
    else:  # by the network cards that a tensor axis leaves to a rank's gathers
        data = roofline.node_tokens(part, max(1, inside // mesh.size("model")), wide)
    link = roofline.axis_intensity if tpu else roofline.nvlink_intensity
    others = mesh.size("seq", "expert", "pipeline", "replica") * mesh.dcn_product
    best = roofline.best_data_shards(tokens, width, hardware.chips) if tokens and width and others == 1 else None
    return {
        "data_bound": data if dense else None,  # tokens per rank that hide data parallelism or FSDP
        # Tokens per chip that the best mix of FSDP and tensor parallelism needs, which divides three axes two to one.
        "mixed_bound": roofline.mixed_tokens(part, width, part.ici_axes - 1, wide) if tpu and width else None,
        "slice_bound": roofline.slice_tokens(part, wide, hardware.slices),
        "tensor_bound": roofline.tensor_shards(part, width, 1, wide) if width else None,
        "hbm_bound": roofline.hbm_tokens(part, wide) if dense else None,
        "link_bound": link(part, wide),
        "attention_bound": link(part, "bf16"),
        "host_bound": roofline.host_width(part, wide),  # parameters per layer over d_model that hide offloading
        "expert_bound": roofline.expert_width(part, mesh.size("expert"), inside, wide),
        # Doublings between the data shards and those at which FSDP and tensor parallelism communicate least.
        "from_best_mix": abs(log2(mesh.size("data", "fsdp") / best)) if best else None,
    }


def _of_run(case: Case) -> dict[str, Fact | Callable[[], Fact]]:
    """Facts of the run and of what the proposal does to it."""
    kpis, step_s = case.diagnosis.kpis, case.observed.step_s
    spent = case.observed.parts_s
    peak, used = kpis.get("memory_peak_share"), case.baseline.hbm_per_chip_bytes
    bought = any(item.subject in _BUYS_MEMORY and item.direction == "up" for item in case.changed)
    return {
        "verdict": case.diagnosis.bottleneck.primary,
        "finding": frozenset(item.rule for item in case.diagnosis.findings),
        "keeps": yes(case.keeps),
        "dcn_falls": yes(case.falls("dcn")),
        "communication_falls": yes(case.falls("ici", "dcn")),
        "compute_falls": yes(case.falls("compute")),
        "saves_memory": yes(bought),
        **{name: sum(spent[part] for part in parts) / step_s for name, parts in _SHARES.items()},
        **{name: kpis.get(kpi) for name, kpi in _KPIS.items()},
        "exposed_share": case.exposed_s / step_s,
        "small_collectives_share": _small_collectives(case),
        "was_memory_share": used.total / used.capacity if peak is None and used else peak,
        **{f"memory_without_{key}": partial(_memory_without, case, keys) for key, keys in _BUYS_MEMORY.items()},
    }


def yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _memory_without(case: Case, keys: tuple[str, ...]) -> Quantity:
    """Memory that the proposal would need if these training keys stayed as they ran, over what a program can fill: by
    the model, and where the run's peak was measured by how it would change from there, whichever is less."""
    changes = {name: value for name, value in case.changes.items() if name not in keys}
    config = candidate(case.config, Candidate(case.mesh.to_json(), changes))
    if missing_facts(config):
        return None
    needed, measured = _memory_share(config), case.diagnosis.kpis.get("memory_peak_share")
    return needed if measured is None else min(needed, measured * needed / _memory_share(case.config))


def _memory_share(config: ExperimentConfig) -> float:
    used = memory.per_chip(from_config(config))
    return float(np.max(used.total / used.capacity))


def _small_collectives(case: Case) -> Quantity:
    """Share of the step in collectives that carry less than their link moves in the time of a hop."""
    known = [op for op in case.diagnosis.ops if op.collective and op.collective_bytes and op.possible_bytes_per_s]
    small = (op for op in known if (op.collective_bytes or 0.0) < HOP_S * (op.possible_bytes_per_s or 0.0))
    return float(sum(op.time_share for op in small)) if known else None
