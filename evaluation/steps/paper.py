"""The three profiles as the paper prints them (arXiv 2511.03844, A.1–A.3): KPIs and five ops, nothing else."""

from __future__ import annotations

from experiments.step_profile import Device, Op, StepProfile
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training

#: (name, category, share %, occurrences, bound by, roofline efficiency %, compute %, memory %)
Row = tuple[str, str, float, int, str, float, float | None, float | None]

ONE: tuple[Row, ...] = (
    ("Custom point-to-point transpose operation", "Custom-call", 0.62, 1, "Unknown", 0.0, None, None),
    ("Asynchronous collective completion", "Custom fusion", 0.55, 1, "HBM", 0.0017, None, None),
    ("Custom point-to-point transpose operation 2", "Custom-call", 0.53, 1, "Unknown", 0.0, None, None),
    ("Custom matrix multiplication with scatter", "Custom-call", 0.48, 1, "Compute", 74.14, None, None),
    ("All-gather matrix multiplication", "Custom-call", 0.45, 1, "Compute", 79.53, None, None),
)
TWO: tuple[Row, ...] = (
    ("All-reduce operation", "All-reduce", 4.97, 672, "HBM", 11.02, 0.0, 11.02),
    ("Asynchronous collective completion", "Custom fusion", 2.40, 672, "HBM", 23.48, 0.0, 23.48),
    ("Bitcast add fusion", "Convolution fusion", 1.62, 4208, "HBM", 81.76, 18.16, 81.76),
    ("Custom forward operation", "Custom-call", 1.24, 1048, "Compute", 26.20, 26.20, 1.54),
    ("Custom DKV fused operation", "Custom-call", 1.09, 1016, "Compute", 72.43, 72.43, 3.47),
)
THREE: tuple[Row, ...] = (
    ("All-reduce operation", "All-reduce", 0.017, 528, "HBM", 0.041, 4.17e-5, 0.041),
    ("All-reduce-scatter fusion", "All-reduce-scatter fusion", 0.009, 528, "HBM", 0.002, 1.84e-5, 0.002),
    ("Collective permute operation", "Collective-permute", 0.008, 528, "VMEM Write", 0.00017, 0.0, 0.00017),
    ("All-reduce operation 2", "All-reduce", 0.007, 528, "VMEM Read", 0.00045, 2.03e-5, 0.00045),
    ("All-reduce-scatter fusion 2", "All-reduce-scatter fusion", 0.007, 528, "HBM", 0.003, 2.41e-5, 0.003),
)
STEP_S = {1: 35.65645, 2: 2.5165, 3: 7.35469}
DUTY = {1: 0.9973, 2: 0.9995, 3: 0.99998}
COMMUNICATION = {1: 0.0257, 2: 0.0752, 3: 0.0535}
BOTTLENECK = {1: "compute", 2: "memory", 3: "communication"}


def op(row: Row, total_s: float = 1.0) -> Op:
    name, category, share, count, bound, roof, compute, memory = row
    return Op(
        name=name, category=category, occurrences=count, self_time_s=total_s * share, total_time_s=total_s * share,
        time_share=share / 100, bound_by=bound, roofline_efficiency=roof / 100,
        compute_efficiency=None if compute is None else compute / 100,
        memory_bandwidth_utilization=None if memory is None else memory / 100,
    )  # fmt: skip


def profile(number: int, rows: tuple[Row, ...] | None = None) -> StepProfile:
    kind, chip, cores = {1: ("TPU v5p", "v5p", 512), 2: ("TPU v6e", "v6e", 16), 3: ("TPU v5e", "v5e", 256)}[number]
    return StepProfile(
        provenance="reconstructed",
        source_kind="xprof_json",
        device=Device(kind, chip, cores, 1),
        step_time_s=STEP_S[number],
        kpis={"duty_cycle": DUTY[number], "communication": COMMUNICATION[number]},
        ops=tuple(op(row) for row in (rows if rows is not None else {1: ONE, 2: TWO, 3: THREE}[number])),
        ops_dropped=None,
    )


def config(number: int) -> ExperimentConfig:
    match number:
        case 1:
            return ExperimentConfig(
                Hardware("v5p", (8, 8, 8)),
                Mesh((("model", 8), ("data", 8), ("seq", 8))),
                training=Training(global_batch=256, seq_len=8192),
            )
        case 2:
            return ExperimentConfig(
                Hardware("v6e", (4, 4)), Mesh((("replica", 1), ("data", 4), ("seq", 4), ("model", 1)))
            )
        case _:
            return ExperimentConfig(
                Hardware("v5e", (16, 16)),
                Mesh((("replica", 1), ("data", 4), ("seq", 16), ("model", 4))),
                training=Training(global_batch=8),
            )
