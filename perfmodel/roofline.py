"""Rooflines: arithmetic intensity and time bounds of single operations, and of the operations of a layer.

Source: scaling book chapter 1.  An operation takes at least the larger of its compute and its transfer time, and at
most their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel import accounting
from perfmodel.config import ExperimentConfig
from perfmodel.workload import ACTIVATION_BYTES, WEIGHT_BYTES, chip_of, micro_batches


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
    elements = rows * (width.traffic_model + width.traffic_sharded) / split
    operations.append(Operation("elementwise", elements, elements * ACTIVATION_BYTES, occurrences))
    return tuple(operations)


def roofs(config: ExperimentConfig) -> tuple[float, float]:
    """Peak FLOP/s in the training precision and HBM bytes/s of the chip."""
    chip = chip_of(config.hardware)
    return chip.peak(config.training.precision), config.hardware.overrides.get("hbm_bytes_per_s", chip.hbm_bytes_per_s)
