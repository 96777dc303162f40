"""XProf's op statistics and roofline table → ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.hlo.host_memory import ON_HOST, host_transfer_bytes
from experiments.hlo.text import parse
from experiments.ingest.roof import efficiencies
from experiments.ingest.timeline import CoreTimeline
from experiments.ingest.values import gviz_rows, hlo_text, number, text
from experiments.step_profile import Op

_HBM_SPACE = 1
#: Beyond this rank, HLO text is shortened: the tail of tens of thousands of ops weighs nothing.
_FULL_TEXT_OPS = 3_000
_TAIL_CHARACTERS = 600


def roofline_rows(roofline: list[Any]) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any] | None]:
    """({(program id, op): row over all steps}, the Program row of the average step, else of all steps)."""
    by_op: dict[tuple[str, str], dict[str, Any]] = {}
    programs: dict[str, dict[str, Any]] = {}
    for row in gviz_rows(roofline[0] if roofline else None):
        if not row.get("include_infeed_outfeed"):
            continue
        step = str(row.get("step"))
        if row.get("operation") == "Program" and not number(row.get("rank")):
            programs[step] = row
        elif step == "Total":
            by_op[str(row.get("hlo_module_id")), str(row.get("operation"))] = row
    # Without steps, the average step is a row of zeros.
    average = programs.get("Average")
    return by_op, average if average and number(average.get("total_time")) else programs.get("Total")


def read_ops(
    stats: Any, roofline: list[Any], peak_flops: float | None, peak_hbm: float | None, *, own_peaks: bool = False
) -> list[Op]:
    """Every op, by descending self time.

    own_peaks: the peaks are not those that XProf used, so its efficiencies are not taken over.
    """
    database = stats.device_op_metrics_db
    metrics = [metric for metric in database.metrics_db if metric.category != "IDLE" and metric.self_time_ps > 0]
    metrics.sort(key=lambda metric: (-metric.self_time_ps, metric.name))
    total_ps = database.total_time_ps or sum(metric.self_time_ps for metric in metrics)
    programs = dict(stats.program_id_to_name_map)
    table, _ = roofline_rows(roofline)
    has_flops = any(metric.flops_v2 or metric.flops for metric in metrics)
    has_bytes = any(metric.bytes_accessed for metric in metrics)
    ops: list[Op] = []
    for rank, metric in enumerate(metrics, 1):
        seconds = metric.self_time_ps * 1e-12
        counted = float(metric.flops_v2 or metric.flops)
        opaque = metric.category == "custom-call" and not counted
        flops = counted if has_flops and not opaque else None
        accessed = float(metric.bytes_accessed) if has_bytes and (metric.bytes_accessed or not opaque) else None
        spaces = [access for access in metric.memory_accessed_breakdown if access.memory_space == _HBM_SPACE]
        hbm = float(sum(access.bytes_accessed for access in spaces)) if metric.memory_accessed_breakdown else None
        if hbm is None and accessed == 0.0:
            hbm = 0.0
        flops_rate = flops / seconds if flops is not None else None
        hbm_rate = hbm / seconds if hbm is not None else None
        row = {} if own_peaks else table.get((str(metric.hlo_module_id), metric.name), {})
        computed = efficiencies(flops_rate, hbm_rate, peak_flops, peak_hbm)
        limit = 16_000 if rank <= _FULL_TEXT_OPS else _TAIL_CHARACTERS
        ops.append(
            Op(
                name=text(metric.name, 500),
                category=text(metric.category, 200) or "unknown",
                occurrences=int(metric.occurrences),
                self_time_s=seconds,
                total_time_s=metric.time_ps * 1e-12,
                time_share=metric.self_time_ps / total_ps,
                program=text(programs.get(metric.hlo_module_id, metric.hlo_module_id), 200),
                rank=rank,
                flops=flops,
                bytes_accessed=accessed,
                hbm_bytes=hbm,
                flops_per_s=flops_rate,
                hbm_bytes_per_s=hbm_rate,
                operational_intensity=flops / accessed if flops is not None and accessed else None,
                bound_by=_bound(row, computed) if peak_flops or peak_hbm else None,
                roofline_efficiency=_share(row.get("roofline_efficiency"), computed[0]),
                compute_efficiency=_share(row.get("compute_efficiency"), computed[1]),
                memory_bandwidth_utilization=_share(row.get("max_mem_bw_utilization"), computed[2]),
                hlo=hlo_text(metric.long_name, limit),
                op_name=text(metric.provenance, 1000).removesuffix(":"),
                source=_source(metric.source_info),
            )
        )
    return ops


def _bound(row: dict[str, Any], computed: tuple[float | None, float | None, float | None]) -> str:
    stated = text(row.get("bound_by"), 50)
    if stated:
        return stated
    roofline, compute, _ = computed
    if not roofline:
        return "Unknown"
    return "Compute" if compute == roofline else "HBM"


def _share(stated: Any, computed: float | None) -> float | None:
    """A share 0–1 of the roofline, where anything was counted at all: XProf states 0 for what it does not know."""
    value = number(stated)
    if computed is None:
        return None
    return value if value is not None else computed


def _source(info: Any) -> str:
    return f"{text(info.file_name, 500)}:{info.line_number}" if info.file_name else ""


def with_cpu_shares(ops: list[Op], cores: Sequence[CoreTimeline]) -> list[Op]:
    """CPU ops run on several threads per device, so their time is put in relation to the devices' profiled time.

    XLA's cost model counts traffic to memory, which is no HBM here.
    """
    total = max(sum(core.window_s for core in cores), sum(op.self_time_s for op in ops))
    return [
        replace(op, time_share=op.self_time_s / total, hbm_bytes=None, hbm_bytes_per_s=None, bound_by=None)
        for op in ops
    ]


def shares_of_steps(ops: Sequence[Op], cores: Sequence[CoreTimeline], profiled_s: float) -> tuple[list[Op], float]:
    """(ops with their share of the steps' time, by how much that is more than their share of the recording).

    profiled_s: time of the recording over all cores, of which XProf states shares.  Where a recording holds much beside
    its steps, its share × step time would be less than the op takes in a step.
    """
    stepped = sum(core.window_s + sum(time_s for _, time_s, _ in core.cut) for core in cores if core.numbers)
    stepped = max(stepped, sum(op.self_time_s for op in ops))
    if stepped <= 0 or profiled_s <= stepped:
        return list(ops), 1.0
    return [replace(op, time_share=op.self_time_s / stepped) for op in ops], profiled_s / stepped


def with_host_bytes(ops: Sequence[Op]) -> list[Op]:
    """The ops with `host_bytes` over all their occurrences; an asynchronous transfer counts at its -done op."""
    if not any(ON_HOST in op.hlo for op in ops):
        return list(ops)
    by_name = {(op.program, op.name): op for op in ops}
    counted: list[Op] = []
    waited: set[tuple[str, str]] = set()
    for op in ops:
        start = _start_of(op, by_name)
        moved = host_transfer_bytes(op.hlo, start.hlo if start else "") if op.hlo else None
        if start is not None and moved is not None:
            waited.add((op.program, start.name))
        counted.append(op if moved is None else replace(op, host_bytes=moved * op.occurrences))
    return [replace(op, host_bytes=None) if (op.program, op.name) in waited else op for op in counted]


def _start_of(op: Op, by_name: dict[tuple[str, str], Op]) -> Op | None:
    if "-done" not in op.name and "-done" not in op.category:
        return None
    instruction = parse(op.hlo)
    names = [*(instruction.operand_names if instruction else ()), op.name.replace("-done", "-start")]
    others = ((op.program, name) for name in names if name != op.name)
    return next((by_name[key] for key in others if key in by_name), None)
