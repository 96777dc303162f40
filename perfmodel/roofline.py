"""MFU, and the book's thresholds, from which communication or HBM hides behind compute.

Source: scaling book chapters 1, 5 and the GPU chapter.  Thresholds are of bf16 values on links and in HBM, and of
wrapped axes at data-sheet bandwidth; precision: that of the matmuls.
"""

from __future__ import annotations

import math

from perfmodel import accounting
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig
from perfmodel.workload import chip_numbers


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
