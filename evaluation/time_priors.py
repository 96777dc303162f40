"""What is believed of the efficiencies before any measured run is looked at, and how far the fit may move them.

Every number is a shift on a scale: its logarithm, or its log-odds where it is a share.  A kind of chip has a textbook
value; families of programs and single programs, chips, precisions and architectures shift it, each by no more than what
is believed of it, so that what was never measured falls back on what it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Prior(NamedTuple):
    """Textbook value, and the standard deviation of its logarithm (log-odds for a share); 0 keeps it as it is."""

    value: float
    spread: float


class Effect(NamedTuple):
    """Standard deviation of the shift a low precision, a chip, a chip and precision may have against its kind."""

    precision: float
    chip: float
    chip_precision: float


#: Of a prior's spread, what a family of programs, and a single program within it, may differ by.
FAMILY_SHARE, PROFILE_SHARE = 0.8, 0.8
#: What only single programs do: nothing of it carries over to others.
PROFILE_ONLY = frozenset(("beside_pipeline_s",))
#: What a program may gain or lose by a low precision against others of its kind.
PROFILE_PRECISION = 0.3
_COMMON: Mapping[str, Prior] = {
    "overlap_reduce": Prior(0.6, 0.8),
    "network": Prior(0.7, 0.4),
    "network_message_s": Prior(5.0e-5, 1.0),
    "network_power": Prior(1.0, 0.3),
    "beside_pipeline_s": Prior(2.0e-6, 1.5),
    "reduce_s": Prior(1.0e-3, 1.0),
    "narrow_heads": Prior(1.0, 0.5),
    "head": Prior(0.9, 0.2),
    "rows_half": Prior(128.0, 0.7),
    "expert_width_half": Prior(200.0, 1.0),
    # Elementwise passes reach about 60 % of the data sheet's bandwidth, and run between the products, not beside them.
    "hbm": Prior(0.6, 0.2),
    "hbm_exposed": Prior(0.8, 0.8),
    "link": Prior(0.8, 0.2),
    "dcn": Prior(0.7, 0.3),
    "overlap_seq": Prior(0.5, 0.8),
    "overlap_dcn": Prior(0.8, 0.8),
    "step_s": Prior(5.0e-3, 0.5),
    "straggler": Prior(0.004, 0.7),
    "slice_straggler": Prior(0.01, 0.7),
    "host_overlap": Prior(0.9, 0.8),
    "architecture": Prior(1.0, 0.0),
    "software_year": Prior(2026.25, 0.0),
}
PRIORS: Mapping[str, Mapping[str, Prior]] = {
    "tpu": {
        **_COMMON,
        "matmul": Prior(0.75, 0.3),
        "expert": Prior(0.85, 0.4),
        "attention": Prior(0.6, 0.3),
        "width_half": Prior(64.0, 0.7),
        "expert_rows_half": Prior(128.0, 0.7),
        "message_s": Prior(5.0e-6, 0.7),
        "overlap_weights": Prior(0.8, 0.8),
        # XLA splits a product with a sharded dimension into steps whose transfers run beside the next step's work.
        "overlap_tensor": Prior(0.6, 0.8),
        "overlap_expert": Prior(0.3, 0.8),
        "overlap_pipeline": Prior(0.5, 0.8),
        "layer_s": Prior(2.0e-5, 1.0),
        "moe_layer_s": Prior(5.0e-5, 1.0),
        "software_per_year": Prior(0.0, 0.0),
        "launch_per_year": Prior(0.0, 0.0),
    },
    "gpu": {
        **_COMMON,
        "matmul": Prior(0.65, 0.2),
        "expert": Prior(0.75, 0.4),
        "attention": Prior(0.6, 0.4),
        "width_half": Prior(256.0, 0.7),
        # Grouped products need a few tiles of rows per expert before they keep all multiprocessors busy.
        "expert_rows_half": Prior(512.0, 0.7),
        # NCCL takes tens of microseconds to launch a collective and to bring its ranks together.
        "message_s": Prior(2.0e-5, 0.5),
        "overlap_weights": Prior(0.6, 0.8),
        # Megatron gathers and scatters on the critical path unless its overlapping kernels are switched on.
        "overlap_tensor": Prior(0.2, 0.8),
        "overlap_expert": Prior(0.6, 0.8),
        # Interleaved schedules send while the next chunk computes.
        "overlap_pipeline": Prior(0.9, 0.8),
        "layer_s": Prior(5.0e-4, 1.0),
        "moe_layer_s": Prior(3.0e-3, 1.0),
        "software_per_year": Prior(0.1, 0.1),
        "launch_per_year": Prior(0.3, 0.3),
    },
}
#: Logarithm of what a low precision is believed to lose against its data-sheet peak: casting and scaling; for int8 the
#: weight gradient stays in bf16; for NVFP4 transforms, and layers that stay in higher precision.
PRECISION_LOSS: Mapping[str, float] = {"fp8": -0.1, "mxfp8": -0.15, "nvfp4": -0.35, "int8": -0.3}
#: What differs by precision and chip beyond the data sheet: how close to its peak a product with weights comes.
EFFECTS: Mapping[str, Effect] = {
    "matmul": Effect(precision=0.3, chip=0.15, chip_precision=0.1),
    "expert": Effect(precision=0.3, chip=0.0, chip_precision=0.0),
    "attention": Effect(precision=0.0, chip=0.2, chip_precision=0.0),
}
#: Architectures other than the plain transformer, whose kernels may be better or worse tuned: log of their speed.
ARCHITECTURES = ("deepseek", "gemma", "gpt-oss", "llama4", "mixtral", "nemotron", "qwen")
ARCHITECTURE_SPREAD = 0.2
