"""A generated step as an XSpace, so that XProf's own conversion stands between the cause and the diagnosis."""

from __future__ import annotations

from pathlib import Path

from xprof.protobuf import op_metrics_pb2

from evaluation.xspace_writer import MODULES_LINE, OPS_LINE, STEPS_LINE, SpaceWriter, StatValue
from experiments.step_profile import Op, StepProfile

PS = 1e12


def write(profile: StepProfile, path: Path) -> None:
    """Steps, modules and ops of every core; input time as an infeed op at the start, idle time as a gap at the end."""
    step_s = profile.step_time_s
    assert step_s is not None
    cores, steps = profile.device.core_count, len(profile.steps)
    space = SpaceWriter("host-0")
    parts = profile.steps[0].breakdown_s
    own = {core.name: core.breakdown_s.get("compute", 0.0) for core in profile.cores}
    usual = min(own.values())
    for core in range(cores):
        plane = space.add_plane(f"/device:TPU:{core}")
        plane.add_stats(
            {
                "device_type_string": profile.device.kind,
                "peak_teraflops_per_second": (profile.device.peak_flops_per_s or 0.0) / 1e12,
                "peak_hbm_bw_gigabytes_per_second": (profile.device.peak_hbm_bytes_per_s or 0.0) / 1e9,
            }
        )
        step_line, modules, ops = (plane.add_line(name) for name in (STEPS_LINE, MODULES_LINE, OPS_LINE))
        module = plane.add_event_metadata("jit_step(1)", "jit_step")
        ids = {
            op.name: plane.add_event_metadata(_line(op), op.name, _stats(op, number + 1, cores * steps))
            for number, op in enumerate(profile.ops)
        }
        waiting = plane.add_event_metadata(
            "%infeed.1 = ((f32[8]), token[]) infeed(token[] %t)",
            "infeed.1",
            {"program_id": 1, "symbol_id": len(ids) + 1, "hlo_category": "infeed"},
        )
        late = own[f"TPU:{core}"] - usual if f"TPU:{core}" in own else 0.0
        for number in range(steps):
            start = number * step_s
            at = start
            mark = plane.add_event_metadata(str(number))
            step_line.add_event(mark, round(start * PS), round(step_s * PS))
            modules.add_event(module, round(start * PS), round(step_s * PS))
            if parts.get("input", 0.0) > 0:
                ops.add_event(waiting, round(at * PS), round(parts["input"] * PS))
                at += parts["input"]
            longest = max(
                (op for op in profile.ops if op.category == "convolution fusion"), key=lambda op: op.self_time_s
            )
            for op in profile.ops:
                seconds = op.self_time_s / (cores * steps)
                if op is longest:
                    seconds += late
                ops.add_event(ids[op.name], round(at * PS), round(seconds * PS))
                at += seconds
    space.write(path)


def _line(op: Op) -> str:
    return (
        op.hlo.replace("%f =", f"%{op.name} =", 1) or f"%{op.name} = bf16[8,128]{{1,0}} fusion(bf16[8,128]{{1,0}} %x)"
    )


def _stats(op: Op, symbol: int, events: int) -> dict[str, StatValue]:
    stats: dict[str, StatValue] = {
        "program_id": 1,
        "symbol_id": symbol,
        "hlo_category": op.category,
        "tf_op": op.op_name,
        "source": op.source,
    }
    if op.flops:
        stats |= {"flops": int(op.flops / events), "model_flops": int(op.flops / events)}
    if op.hbm_bytes:
        size = int(op.hbm_bytes / events)
        moved = op_metrics_pb2.MemoryAccessBreakdown()
        moved.memory_accessed.add(operation_type=1, memory_space=1, bytes_accessed=size)
        stats |= {"bytes_accessed": size, "memory_access_breakdown": moved.SerializeToString()}
    return stats
