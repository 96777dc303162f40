"""The same profile measured on another day: durations a little off, some ops missing."""

from __future__ import annotations

import random
from dataclasses import replace

from experiments.step_profile import Op, StepProfile


def perturbed(profile: StepProfile, seed: int, spread: float = 0.10, dropped: float = 0.05) -> StepProfile:
    """Every op's duration times 1 ± spread at the same work, and a share of the ops gone; KPIs as they were."""
    noise = random.Random(seed)
    ops: list[Op] = []
    for op in profile.ops:
        if noise.random() < dropped:
            continue
        factor = 1.0 + noise.uniform(-spread, spread)

        def rate(value: float | None, by: float = factor) -> float | None:
            return None if value is None else value / by

        ops.append(
            replace(
                op,
                self_time_s=op.self_time_s * factor,
                total_time_s=op.total_time_s * factor,
                time_share=op.time_share * factor,
                roofline_efficiency=rate(op.roofline_efficiency),
                compute_efficiency=rate(op.compute_efficiency),
                memory_bandwidth_utilization=rate(op.memory_bandwidth_utilization),
                flops_per_s=rate(op.flops_per_s),
                hbm_bytes_per_s=rate(op.hbm_bytes_per_s),
            )
        )
    return replace(profile, ops=tuple(sorted(ops, key=lambda op: -op.self_time_s)))
