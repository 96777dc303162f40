"""The profile that a recording of a simulated step would be."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from evaluation.simulated import Row, SimulatedStep
from evaluation.simulated_cluster import Cluster, World
from experiments.step_profile import Core, Device, Memory, Op, Step, StepProfile
from perfmodel.config import ExperimentConfig

CORES, STEPS = 8, 3


def record(config: ExperimentConfig, world: World, step: SimulatedStep, seed: int = 0) -> StepProfile:
    """The step as a profile of three steps on eight cores: durations off by the world's noise, small ops missing."""
    draw = random.Random(seed)
    cluster = Cluster(world, config.hardware, config.mesh, config.training.precision)
    merged: dict[tuple[str, ...], Row] = {}
    for row in step.rows:
        key = (row.stem, row.path, row.line)
        if key in merged:
            old = merged[key]
            merged[key] = replace(
                old,
                count=old.count + row.count,
                seconds=old.seconds + row.seconds,
                in_flight_s=old.in_flight_s + row.in_flight_s,
            )
        else:
            merged[key] = row
    step_s = step.step_s
    ops: list[Op] = []
    talking = 0.0
    for number, row in enumerate(merged.values(), start=1):
        if row.seconds < 0.003 * step_s and draw.random() < 0.05:
            continue
        seconds = row.seconds * draw.gauss(1.0, world.noise)
        if row.kernel is None:
            talking += seconds
            ops.extend(_collective_ops(row, number, seconds, step_s, world, draw))
        else:
            ops.append(_kernel_op(row, number, seconds, step_s, cluster))
    ops.sort(key=lambda op: -op.self_time_s)
    parts = {"compute": step.busy_s - talking, "collective": talking, **step.stalls}
    stalled = sum(step.stalls.values())
    cores = tuple(
        Core(f"TPU:{i}", "host-0", {"compute": step.busy_s - talking, "collective": talking}) for i in range(CORES)
    )
    return StepProfile(
        provenance="reconstructed",
        source_kind="xplane",
        device=Device(cluster.chip.title, cluster.chip.name, CORES, 1, cluster.peak, cluster.band),
        step_time_s=step_s,
        step_time_min_s=step_s,
        step_time_max_s=step_s,
        step_time_stdev_s=0.0,
        steps=tuple(Step(number, step_s, parts) for number in range(STEPS)),
        cores=cores,
        kpis={
            "duty_cycle": 1.0 - stalled / step_s,
            "idle": stalled / step_s,
            "communication": talking / step_s,
            "input": step.stalls["input"] / step_s,
            "host": step.stalls["host"] / step_s,
        },
        ops=tuple(ops),
        memory=Memory(),
    )


def _kernel_op(row: Row, number: int, seconds: float, step_s: float, cluster: Cluster) -> Op:
    assert row.kernel is not None
    flops, moved = row.kernel.flops * row.count, row.kernel.moved * row.count
    compute, memory = flops / cluster.peak, moved / cluster.band
    times = CORES * STEPS
    return Op(
        f"{row.stem}.{number}",
        row.category,
        row.count * times,
        seconds * times,
        seconds * times,
        seconds / step_s,
        "jit_step",
        flops=flops * times,
        bytes_accessed=moved * times,
        hbm_bytes=moved * times,
        flops_per_s=flops / seconds,
        hbm_bytes_per_s=moved / seconds,
        operational_intensity=flops / moved,
        bound_by="Compute" if compute >= memory else "HBM",
        roofline_efficiency=max(compute, memory) / seconds,
        compute_efficiency=compute / seconds,
        memory_bandwidth_utilization=memory / seconds,
        op_name=f"jit(step)/{row.path}",
        source="model.py:10",
        hlo=row.line,
    )


def _collective_ops(
    row: Row, number: int, seconds: float, step_s: float, world: World, draw: random.Random
) -> list[Op]:
    shape, kind, operand, groups = row.line.split("|")
    times = CORES * STEPS
    intervals: dict[str, Any] = {}
    if world.intervals:
        flight = max(seconds, row.in_flight_s * seconds / max(row.seconds, 1e-12))
        if seconds < 0.1 * flight:  # nobody waits for its end: the done op may stand long after it
            flight *= draw.uniform(1.0, 2.5)
        intervals = {"in_flight_s": flight * times, "exposed_s": seconds * times}
    common: dict[str, Any] = {
        "program": "jit_step",
        "flops": 0.0,
        "bound_by": "HBM",
        "op_name": f"jit(step)/{row.path}",
        "source": "model.py:20",
    }
    if not row.stem.endswith("-start"):
        name = f"{row.stem}.{number}"
        line = f"%{name} = {shape} {kind}({operand} %p), channel_id={number}, {groups}, use_global_device_ids=true"
        own = _times(row.count, seconds, step_s)
        return [Op(name, kind, hlo=line, roofline_efficiency=0.05, **own, **common, **intervals)]
    start, done = f"{row.stem}.{number}", f"{kind}-done.{number}"
    opening = f"%{start} = ({operand}, {shape}) {kind}-start({operand} %p), channel_id={number}, {groups}"
    closing = f"%{done} = {shape} {kind}-done(({operand}, {shape}) %{start})"
    first, second = _times(row.count, 1e-7 * row.count, step_s), _times(row.count, seconds, step_s)
    return [
        Op(start, f"{kind}-start", hlo=opening, **first, **common),
        Op(done, f"{kind}-done", hlo=closing, roofline_efficiency=0.001, **second, **common, **intervals),
    ]


def _times(count: int, seconds: float, step_s: float) -> dict[str, Any]:
    """An op's occurrences and time over the whole profile."""
    whole = seconds * CORES * STEPS
    return {
        "occurrences": count * CORES * STEPS,
        "self_time_s": whole,
        "total_time_s": whole,
        "time_share": seconds / step_s,
    }
