"""Small profiles written down by hand: shares of a step of one second on eight cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnosis.report import Diagnosis, Finding
from experiments.step_profile import Core, Device, Memory, Op, Step, StepProfile
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training

STEP_S = 1.0
CORES = 8
STEPS = 2
PEAK = 1.97e14
BANDWIDTH = 8.1e11
NOT_RECORDED = Memory()


def op(name: str, category: str, share: float, count: int = 10, **more: Any) -> Op:
    """`share` of the step, `count` occurrences per step and core."""
    total = share * STEP_S * CORES * STEPS
    return Op(
        name=name,
        category=category,
        occurrences=count * CORES * STEPS,
        self_time_s=total,
        total_time_s=total,
        time_share=share,
        program="jit_step",
        **more,
    )


def matmul(name: str, share: float, efficiency: float = 0.7, **more: Any) -> Op:
    seconds = share * STEP_S * CORES * STEPS
    more = {"op_name": "jit(step)/jvp(mlp)/mlp/dot_general", "hbm_bytes": 0.1 * BANDWIDTH * seconds, **more}
    return op(
        name,
        "convolution fusion",
        share,
        bound_by="Compute",
        roofline_efficiency=efficiency,
        compute_efficiency=efficiency,
        flops=efficiency * PEAK * seconds,
        **more,
    )


def stream(name: str, share: float, efficiency: float = 0.8, category: str = "loop fusion", **more: Any) -> Op:
    """An op that streams HBM at `efficiency` of its peak."""
    seconds = share * STEP_S * CORES * STEPS
    return op(
        name,
        category,
        share,
        bound_by="HBM",
        roofline_efficiency=efficiency,
        memory_bandwidth_utilization=efficiency,
        hbm_bytes=efficiency * BANDWIDTH * seconds,
        hbm_bytes_per_s=efficiency * BANDWIDTH,
        flops=1.0,
        compute_efficiency=0.0,
        **more,
    )


def collective(
    kind: str,
    share: float,
    groups: str,
    shape: str = "bf16[1024,4096]",
    name: str = "",
    count: int = 10,
    operand: str = "",
    **more: Any,
) -> Op:
    name = name or f"{kind}.1"
    text = (
        f"%{name} = {shape}{{1,0}} {kind}({operand or shape}{{1,0}} %p), channel_id=1, {groups}, "
        "use_global_device_ids=true"
    )
    return op(
        name,
        kind,
        share,
        count,
        hlo=text,
        bound_by="HBM",
        roofline_efficiency=0.002,
        memory_bandwidth_utilization=0.002,
        flops=0.0,
        **more,
    )


def config(
    ici: dict[str, int],
    topology: Sequence[int] = (),
    chip: str = "v5e",
    dcn: dict[str, int] | None = None,
    **training: Any,
) -> ExperimentConfig:
    chips = 1
    for size in ici.values():
        chips *= size
    slices = 1
    for size in (dcn or {}).values():
        slices *= size
    return ExperimentConfig(
        Hardware(chip, tuple(topology) or (chips,), slices),
        Mesh(tuple(ici.items()), tuple((dcn or {}).items())),
        training=Training(**training),
    )


def profile(
    *ops: Op,
    kpis: dict[str, float | None] | None = None,
    cores: Sequence[Core] | None = None,
    memory: Memory = NOT_RECORDED,
    step_s: float | None = STEP_S,
    parts: dict[str, float] | None = None,
    kind: str = "TPU v5e",
    **more: Any,
) -> StepProfile:
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device(kind, None if kind == "CPU" else "v5e", CORES, 1, PEAK, BANDWIDTH),
        step_time_s=step_s,
        steps=tuple(Step(number, STEP_S, parts or {}) for number in range(STEPS)) if step_s else (),
        cores=tuple(cores or ()),
        kpis={"duty_cycle": 1.0} if kpis is None else kpis,
        ops=tuple(sorted(ops, key=lambda item: -item.self_time_s)),
        memory=memory,
        **more,
    )


def find(diagnosis: Diagnosis, rule: str) -> Finding:
    found = [finding for finding in diagnosis.findings if finding.rule == rule]
    assert found, f"no {rule} among {[finding.rule for finding in diagnosis.findings]}"
    return found[0]


def rules(diagnosis: Diagnosis) -> set[str]:
    return {finding.rule for finding in diagnosis.findings}
