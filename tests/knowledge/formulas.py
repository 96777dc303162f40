"""The formulas behind numbers in passages, computed by `perfmodel` (knowledge/passages/README.md, `computed`).

Arguments are those of the passage file.  SI units, as the passage prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from knowledge.passage_file import Computed
from perfmodel import accounting, roofline, topology
from perfmodel.catalogue import get_model
from perfmodel.chips import get_chip
from perfmodel.topology import ICI_HOP_S, group_links, lay_out

FORMULAS: dict[str, Callable[..., float]] = {}


def formula(function: Callable[..., float]) -> Callable[..., float]:
    FORMULAS[function.__name__] = function
    return function


def compute(entry: Computed) -> float:
    if entry.formula not in FORMULAS:
        raise KeyError(f"{entry.formula} is no formula; there are {', '.join(sorted(FORMULAS))}")
    return float(FORMULAS[entry.formula](*entry.arguments))


# Thresholds


@formula
def hbm_ridge(chip: str, precision: str = "bf16", weight_bytes: str = "2") -> float:
    """Tokens from which a matmul is compute-bound."""
    return roofline.hbm_tokens(get_chip(chip), precision, float(weight_bytes))


@formula
def ici_ridge(chip: str, axes: str = "1") -> float:
    """Tokens per chip that hide data parallelism or FSDP on so many wrapped axes."""
    return roofline.data_tokens(get_chip(chip), int(axes))


@formula
def nvlink_ridge(chip: str) -> float:
    """d_ff per tensor rank that hides tensor parallelism inside the NVLink domain."""
    return roofline.nvlink_intensity(get_chip(chip))


@formula
def node_ridge(chip: str) -> float:
    """Tokens per GPU that hide FSDP across nodes: every byte enters a node once, over its eight cards together."""
    return roofline.node_tokens(get_chip(chip))


@formula
def dcn_critical_tokens(chip: str, slices: str = "inf") -> float:
    """Tokens per slice that hide data parallelism over DCN; independent of the slice's size."""
    return roofline.slice_tokens(get_chip(chip), slices=float(slices))


@formula
def two_chip_width(chip: str) -> float:
    """Contracting dimension from which two chips hide the exchange of a product's partial sums on one link."""
    found = get_chip(chip)
    return 2 * found.peak("bf16") / found.ici_link_bytes_per_s


@formula
def host_ridge(chip: str) -> float:
    """Parameters per layer over d_model that hide offloading a layer input; FLOPs per byte of the host link."""
    return roofline.host_width(get_chip(chip))


@formula
def tensor_bound(chip: str, d_ff: str, axes: str = "1") -> float:
    """Tensor shards above which the tensor axis waits for its links (book 5.1.3): M F W / C."""
    return roofline.tensor_shards(get_chip(chip), float(d_ff), int(axes))


@formula
def nvlink_tensor_bound(chip: str, d_ff: str) -> float:
    return roofline.tensor_shards(get_chip(chip), float(d_ff))


@formula
def whole_layer_width(d_ff: str, heads: str, kv_heads: str, head_dim: str) -> float:
    """What takes the place of d_ff in the tensor bound when gating and attention count: compute over traffic."""
    return (6 * float(d_ff) + 4 * float(head_dim) * (float(heads) + float(kv_heads))) / 8


@formula
def mixed_bound(chip: str, d_ff: str, axes_product: str) -> float:
    """Tokens per chip at the best mix of FSDP and tensor parallelism: 4 α² / (M_X M_Y F)."""
    return roofline.mixed_tokens(get_chip(chip), float(d_ff), float(axes_product))


@formula
def best_data_shards(batch_tokens: str, d_ff: str, chips: str, data_axes: str) -> float:
    """FSDP shards at which FSDP and tensor parallelism together communicate least (book 5.1.4): √(B N M_X / F)."""
    return roofline.best_data_shards(float(batch_tokens), float(d_ff), float(chips), int(data_axes))


@formula
def expert_width_per_ring_chip(chip: str) -> float:
    """Expert width that hides its all-to-all on a wrapped ring, for each chip of the ring: C / (12 w)."""
    found, size, local = get_chip(chip), 16, 1e9
    links = group_links(found, lay_out(np.array([[size]]), (size,)), [0], (True,))
    return float(found.peak("bf16") * topology.collective_s("all-to-all", links, local)[0] / local / 1.5 / size)


@formula
def expert_width_switch(chip: str) -> float:
    found = get_chip(chip)
    return found.peak("bf16") / (1.5 * found.nvlink_bytes_per_s)


@formula
def latency_kilobytes(chip: str) -> float:
    """Message per hop under which a link waits for latency."""
    return get_chip(chip).ici_link_bytes_per_s * ICI_HOP_S / 1e3


@formula
def vpu_intensity(chip: str, vector_flops_per_s: str) -> float:
    """FLOPs per byte from which elementwise work waits for the vector unit."""
    return float(vector_flops_per_s) / get_chip(chip).hbm_bytes_per_s


# Hardware


@formula
def vms_of_pod(chip: str) -> float:
    found = get_chip(chip)
    return prod(found.pod) / found.chips_per_vm


@formula
def dcn_per_chip(chip: str) -> float:
    return get_chip(chip).dcn_bytes_per_s_per_chip


@formula
def nvlink_over_network(chip: str) -> float:
    found = get_chip(chip)
    return found.nvlink_bytes_per_s / found.dcn_bytes_per_s_per_chip


# Models, memory and time


@formula
def parameters(model: str) -> float:
    return accounting.parameters(get_model(model)).total


@formula
def parameters_billion(model: str) -> float:
    return parameters(model) / 1e9


@formula
def active_billion(model: str) -> float:
    return accounting.parameters(get_model(model)).active / 1e9


@formula
def training_flops(model: str, tokens: str) -> float:
    """6 N D of a dense model; tokens = 1 gives FLOPs per token."""
    return 6 * parameters(model) * float(tokens)


@formula
def training_days(model: str, tokens: str, chip: str, chips: str, mfu: str) -> float:
    rate = float(chips) * get_chip(chip).peak("bf16") * float(mfu)
    return training_flops(model, tokens) / rate / 86_400


@formula
def mfu_percent(active: str, tokens: str, chip_hours: str, peak: str) -> float:
    return 100 * 6 * float(active) * float(tokens) / (float(chip_hours) * 3600 * float(peak))


@formula
def state_gigabytes(model: str, bytes_per_parameter: str, shards: str = "1") -> float:
    return parameters(model) * float(bytes_per_parameter) / float(shards) / 1e9


@formula
def replicable_parameters(chip: str, bytes_per_parameter: str) -> float:
    return get_chip(chip).hbm_usable_bytes / float(bytes_per_parameter)


@formula
def zero_bytes(stage: str, ranks: str) -> float:
    """Bytes per parameter of 16-bit weights and gradients with 12 bytes of optimizer state, ZeRO stage 0 to 3."""
    kept = {"0": 16.0, "1": 4 + 12 / float(ranks), "2": 2 + 14 / float(ranks), "3": 16 / float(ranks)}
    return kept[stage]


@formula
def kv_kilobytes_per_token(model: str) -> float:
    shape = get_model(model)
    return 2.0 * shape.kv_heads * shape.head_dim * shape.layers * 2 / 1e3


@formula
def kv_gigabytes(layers: str, kv_heads: str, head_dim: str, tokens: str) -> float:
    return 2.0 * int(layers) * int(kv_heads) * int(head_dim) * int(tokens) * 2 / 1e9


@formula
def saved_terabytes(arrays: str, tokens: str, d_model: str, layers: str) -> float:
    """Activations in bf16: so many arrays of tokens × d_model for each layer."""
    return 2 * float(arrays) * float(tokens) * float(d_model) * float(layers) / 1e12


@formula
def logits_gigabytes(tokens: str, vocab: str) -> float:
    return 4 * float(tokens) * float(vocab) / 1e9


@formula
def hbm_read_ms(chip: str, array_bytes: str) -> float:
    return float(array_bytes) / get_chip(chip).hbm_bytes_per_s * 1e3


@formula
def generate_step_ms(
    chip: str, chips: str, sequences: str, kv_bytes: str, parameters_held: str, parameter_bytes: str
) -> float:
    """Book 7.1.5: the KV cache through HBM, and the weights through HBM or their FLOPs, whichever is longer."""
    found, n = get_chip(chip), float(chips)
    hbm = n * found.hbm_bytes_per_s
    attention = float(sequences) * float(kv_bytes) / hbm
    flops = 2 * float(sequences) * float(parameters_held)
    weights = max(flops / (n * found.peak("bf16")), float(parameters_held) * float(parameter_bytes) / hbm)
    return 1e3 * (attention + weights)


@formula
def tokens_per_chip(tokens: str, chips: str) -> float:
    return float(tokens) / float(chips)


@formula
def bubble_percent(stages: str, micro_batches: str, virtual: str = "1") -> float:
    """(p − 1) / (v m + p − 1) of a pipelined step."""
    idle = (int(stages) - 1) / int(virtual)
    return 100 * idle / (int(micro_batches) + idle)


@formula
def intensity_of_context_gather(tokens: str, queries_per_kv: str, shards: str) -> float:
    return float(tokens) * float(queries_per_kv) / float(shards)


@formula
def amdahl(share: str, rate: str) -> float:
    return 1 / (1 - float(share) + float(share) / float(rate))
