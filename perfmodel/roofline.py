"""Rooflines of single operations and of those of a layer; and the book's thresholds, from which communication or HBM
hides behind compute.

Source: scaling book chapters 1, 5 and the GPU chapter.  An operation takes at least the larger of its compute and its
transfer time, and at most their sum.  Thresholds are of bf16 values on links and in HBM, and of wrapped axes at
data-sheet bandwidth; precision: that of the matmuls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel import accounting
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig, micro_batches
from perfmodel.workload import ACTIVATION_BYTES, WEIGHT_BYTES, chip_numbers


@dataclass(frozen=True)
class Operation:
    """One operation on one chip.  flops and hbm_bytes per occurrence; occurrences per step, forward and backward."""

    name: str
    flops: float
    hbm_bytes: float
    occurrences: float = 1.0

    @property
    def intensity(self) -> float:
        """FLOPs per byte of HBM."""
        return self.flops / self.hbm_bytes

    def compute_s(self, flops_per_s: float) -> float:
        return self.flops / flops_per_s

    def transfer_s(self, bytes_per_s: float) -> float:
        return self.hbm_bytes / bytes_per_s

    def lower_s(self, flops_per_s: float, bytes_per_s: float) -> float:
        """Compute and transfer at once."""
        return max(self.compute_s(flops_per_s), self.transfer_s(bytes_per_s))

    def attainable_flops_per_s(self, flops_per_s: float, bytes_per_s: float) -> float:
        """The roof above this intensity."""
        return min(flops_per_s, self.intensity * bytes_per_s)


def matmul(
    rows: float,
    inner: float,
    columns: float,
    input_bytes: float = ACTIVATION_BYTES,
    weight_bytes: float = WEIGHT_BYTES,
    output_bytes: float = ACTIVATION_BYTES,
    name: str = "matmul",
    occurrences: float = 1.0,
) -> Operation:
    """[rows, inner] times [inner, columns], with bytes per element of each array (book 1.1.2)."""
    moved = input_bytes * rows * inner + weight_bytes * inner * columns + output_bytes * rows * columns
    return Operation(name, 2.0 * rows * inner * columns, moved, occurrences)


def layer_operations(config: ExperimentConfig) -> tuple[Operation, ...]:
    """The operations of one layer, forward, as one chip runs them on one micro-batch; for a mixture one MoE layer.

    The configuration must name model, batch and sequence length.  Elementwise work is gathered in one operation with
    one FLOP per element moved.
    """
    shape, training, mesh = config.model, config.training, config.mesh
    assert shape is not None
    assert training.global_batch is not None
    assert training.seq_len is not None
    groups = mesh.token_shards
    rows = training.global_batch * training.seq_len / groups / micro_batches(training, mesh)
    split = mesh.size("model")
    count = accounting.parameters(shape)
    occurrences = shape.layers / mesh.size("pipeline") * micro_batches(training, mesh)

    def product(name: str, weights: float, share: float = 1.0) -> Operation:
        width = weights / shape.d_model / split
        return matmul(rows * share, shape.d_model, width, name=name, occurrences=occurrences)

    heads_out = shape.heads * (shape.v_head_dim if shape.attention == "mla" else shape.head_dim)
    projections = count.layer_attention - heads_out * shape.d_model
    operations = [product("attention projections", projections), product("attention output", heads_out * shape.d_model)]
    context = accounting.layer_contexts(shape, training.seq_len) / shape.layers
    scores = 2.0 * rows * shape.heads / split * accounting.score_width(shape) * context
    kept = rows * shape.heads / split * accounting.score_width(shape) * ACTIVATION_BYTES * 2.0
    operations.append(Operation("attention scores", scores, kept, occurrences))
    matrices = accounting.mlp_matrices(shape)
    if shape.experts:
        local = shape.experts / mesh.size("expert")
        per_expert = rows * mesh.size("expert") * shape.experts_per_token / shape.experts
        one = matmul(per_expert, shape.d_model, matrices * accounting.expert_width(shape) / split)
        operations.append(Operation("experts", local * one.flops, local * one.hbm_bytes, occurrences))
        if shape.shared_experts:
            operations.append(product("shared experts", count.layer_shared_experts))
    else:
        inputs = matrices - 1
        operations.append(product("MLP in", inputs * shape.d_model * shape.d_ff))
        operations.append(product("MLP out", shape.d_model * shape.d_ff))
    width = accounting.activation_widths(shape)
    elements = rows * (width["traffic_model"] + width["traffic_sharded"]) / split
    operations.append(Operation("elementwise", elements, elements * ACTIVATION_BYTES, occurrences))
    return tuple(operations)


def roofs(config: ExperimentConfig) -> tuple[float, float]:
    """Peak FLOP/s in the training precision and HBM bytes/s of the chip, as the site has them."""
    chip = chip_numbers(config.hardware, config.training.precision)
    return float(chip.peak[0]), float(chip.hbm_bytes_per_s[0])


def mfu(config: ExperimentConfig, step_s: float | None, precision: str) -> float | None:
    """Return the model FLOPs of a step of `step_s` over what its chips compute in that time at their dense peak of
    `precision`, above 1 where these contradict; None where a fact is missing.

    Every MFU of the product is this one.  Source of the count: scaling book 4.3.
    """
    shape, training, hardware = config.model, config.training, config.hardware
    if not (step_s and shape and training.global_batch_tokens and training.seq_len):
        return None
    flops = accounting.model_flops_per_token(shape, training.seq_len) * training.global_batch_tokens
    return flops / (step_s * float(chip_numbers(hardware, precision).peak[0]) * hardware.chips)


def axis_intensity(chip: Chip, precision: str = "bf16") -> float:
    """FLOP/s over both directions of one wrapped ICI axis, FLOPs per byte."""
    return chip.peak(precision) / (2 * chip.ici_link_bytes_per_s)


def nvlink_intensity(chip: Chip, precision: str = "bf16") -> float:
    """FLOP/s over one-way NVLink bandwidth: d_ff per rank that hides tensor parallelism inside the domain."""
    return chip.peak(precision) / chip.nvlink_bytes_per_s


def hbm_tokens(chip: Chip, precision: str = "bf16", weight_bytes: float = 2.0) -> float:
    """Tokens from which a matmul is compute-bound."""
    return chip.peak(precision) / chip.hbm_bytes_per_s * weight_bytes / 2


def data_tokens(chip: Chip, axes: int, precision: str = "bf16") -> float:
    """Tokens per data shard that hide data parallelism or FSDP on so many wrapped ICI axes."""
    return axis_intensity(chip, precision) / axes


def node_tokens(chip: Chip, cards: int = 8, precision: str = "bf16") -> float:
    """Tokens per data rank that hide FSDP across nodes: every byte enters a node once, over so many cards together."""
    return chip.peak(precision) / (cards * chip.dcn_bytes_per_s_per_chip)


def slice_tokens(chip: Chip, precision: str = "bf16", slices: float = math.inf) -> float:
    """Tokens per slice that hide data parallelism over DCN; independent of the slice's size (book 5.1.6).  Of an
    all-reduce over n slices each sends (n - 1)/n, which the book takes as 1."""
    return chip.peak(precision) / chip.dcn_bytes_per_s_per_chip * (1 - 1 / slices)


def tensor_shards(chip: Chip, d_ff: float, axes: int = 1, precision: str = "bf16") -> float:
    """Tensor shards above which the tensor axis waits for its links (book 5.1.3): M F W / C; inside an NVLink domain
    F W / C."""
    if chip.kind == "gpu":
        return d_ff / nvlink_intensity(chip, precision)
    return axes * d_ff / axis_intensity(chip, precision)


def mixed_tokens(chip: Chip, d_ff: float, axes_product: float, precision: str = "bf16") -> float:
    """Tokens per chip at the best mix of FSDP and tensor parallelism: 4 α² / (M_X M_Y F)."""
    return 4 * axis_intensity(chip, precision) ** 2 / (axes_product * d_ff)


def best_data_shards(tokens: float, d_ff: float, chips: float, axes_ratio: float = 1.0) -> float:
    """FSDP shards at which FSDP and tensor parallelism together communicate least (book 5.1.4): √(B/F · M_X/M_Y · N)"""
    return float((tokens / d_ff * axes_ratio * chips) ** 0.5)


def host_width(chip: Chip, precision: str = "bf16") -> float:
    """Parameters per layer over d_model that hide offloading a layer input; FLOPs per byte of the host link."""
    return chip.peak(precision) / chip.host_link_bytes_per_s


def expert_width(chip: Chip, degree: int, domain: int, precision: str = "bf16") -> float:
    """Expert width that hides the all-to-all of a gated expert: C / (1.5 W) on a switch, over the network cards where
    the group is larger than the NVLink domain; C n / (12 w) on a wrapped ring of n chips.

    domain: GPUs of an NVLink domain; of no meaning on a TPU.
    """
    peak = chip.peak(precision)
    if chip.kind == "tpu":
        return peak * degree / (12 * chip.ici_link_bytes_per_s)
    return peak / (1.5 * (chip.nvlink_bytes_per_s if degree <= domain else chip.dcn_bytes_per_s_per_chip))
