"""What the ASAP paper (arXiv 2511.03844) prints about its three experiments, sections A.1.1, A.2.1 and A.3.1.

Only printed numbers stand here; how they fit together is said in docs/reconstruction.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrintedOp:
    """One row of a printed top-5 table.

    time_share: of the total self time, 0–1, as printed (experiment 3 prints fractions with a % sign).  total_ps and
    occurrences over the whole profile; None where not printed.  Efficiencies 0–1 of the roofline, None where not
    printed; roofline_efficiency is that of the resource named in `bound_by`.
    """

    operation: str
    category: str
    time_share: float
    bound_by: str
    roofline_efficiency: float
    compute_efficiency: float | None = None
    memory_utilization: float | None = None
    total_ps: int | None = None
    occurrences: int | None = None


@dataclass(frozen=True)
class PrintedExperiment:
    """KPIs and set-up of one experiment.  communication: share of the step, 0–1.  mesh: axis sizes, as printed."""

    number: int
    section: str
    device: str
    topology: tuple[int, ...]
    mesh: tuple[tuple[str, int], ...]
    step_time_ms: float
    duty_cycle: float
    communication: float
    ops: tuple[PrintedOp, ...]
    batch: int | None = None
    seq_len: int | None = None


EXPERIMENT_1 = PrintedExperiment(
    number=1,
    section="A.1.1",
    device="TPU v5p-512",
    topology=(8, 8, 8),
    mesh=(("model", 8), ("data", 8), ("seq", 8)),
    step_time_ms=35656.45,
    duty_cycle=0.9973,
    communication=0.0257,
    batch=256,
    seq_len=8192,
    ops=(
        PrintedOp("Custom point-to-point transpose operation", "custom-call", 0.0062, "Unknown", 0.0),
        PrintedOp("Asynchronous collective completion", "custom fusion", 0.0055, "HBM", 0.000017),
        PrintedOp("Custom point-to-point transpose operation", "custom-call", 0.0053, "Unknown", 0.0),
        PrintedOp("Custom matrix multiplication with scatter", "custom-call", 0.0048, "Compute", 0.7414),
        PrintedOp("All-gather matrix multiplication", "custom-call", 0.0045, "Compute", 0.7953),
    ),
)

EXPERIMENT_2 = PrintedExperiment(
    number=2,
    section="A.2.1",
    device="TPU v6e-16",
    topology=(4, 4),
    mesh=(("replica", 1), ("data", 4), ("seq", 4), ("model", 1)),
    step_time_ms=2516.50,
    duty_cycle=0.9995,
    communication=0.0752,
    ops=(
        PrintedOp("All-reduce operation", "all-reduce", 0.0497, "HBM", 0.1102, 0.0, 0.1102, 11_996_554_572_500, 672),
        PrintedOp(
            "Asynchronous collective completion", "custom fusion", 0.0240, "HBM", 0.2348, 0.0, 0.2348,
            5_804_720_502_500, 672,
        ),
        PrintedOp(
            "Bitcast add fusion", "convolution fusion", 0.0162, "HBM", 0.8176, 0.1816, 0.8176,
            3_914_190_556_250, 4208,
        ),
        PrintedOp(
            "Custom forward operation", "custom-call", 0.0124, "Compute", 0.2620, 0.2620, 0.0154,
            2_993_809_555_000, 1048,
        ),
        PrintedOp(
            "Custom DKV fused operation", "custom-call", 0.0109, "Compute", 0.7243, 0.7243, 0.0347,
            2_625_064_416_250, 1016,
        ),
    ),
)  # fmt: skip

EXPERIMENT_3 = PrintedExperiment(
    number=3,
    section="A.3.1",
    device="TPU v5e-256",
    topology=(16, 16),
    mesh=(("replica", 1), ("data", 4), ("seq", 16), ("model", 4)),
    step_time_ms=7354.69,
    duty_cycle=7354.53 / 7354.69,
    communication=393.43526 / 7354.69,
    batch=8,
    ops=(
        PrintedOp(
            "All-reduce operation", "all-reduce", 0.017, "HBM", 0.041, 4.17e-05, 0.041, 4_192_472_280_000, 528
        ),
        PrintedOp(
            "All-reduce-scatter fusion", "all-reduce-scatter fusion", 0.009, "HBM", 0.002, 1.84e-05, 0.002,
            2_375_953_732_500, 528,
        ),
        PrintedOp(
            "Collective permute operation", "collective-permute", 0.008, "VMEM Write", 0.00017, 0.0, 0.00017,
            2_150_317_575_000, 528,
        ),
        PrintedOp(
            "All-reduce operation", "all-reduce", 0.007, "VMEM Read", 0.00045, 2.03e-05, 0.00045,
            1_907_855_473_750, 528,
        ),
        PrintedOp(
            "All-reduce-scatter fusion", "all-reduce-scatter fusion", 0.007, "HBM", 0.003, 2.41e-05, 0.003,
            1_810_710_692_500, 528,
        ),
    ),
)  # fmt: skip
