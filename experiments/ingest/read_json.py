"""XProf's JSON exports → StepProfile: full tables, or as thin as KPIs and the five largest ops.

What an export does not hold is not measured, with the reason.  Tables of one upload complete each other by op name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.json_documents import Piece, load, pieces
from experiments.ingest.json_ops import merge_ops
from experiments.ingest.json_rows import at_least_zero, time_s, wrong
from experiments.ingest.kpis import FORMULAS, KPI_KEYS
from experiments.ingest.memory import worst
from experiments.ingest.memory_tables import allocator_curve, heap_schedule
from experiments.ingest.steps import gpu_step
from experiments.ingest.values import GIB, number, text
from experiments.step_profile import Device, Memory, Note, SourceFile, Step, StepProfile
from perfmodel.chips import chip_from_device_type

#: KPI ← keys, all shares; `percent` in the key or `%` in the text means 0–100, else a value above 1.5 does.
_KPI_KEYS = {
    "duty_cycle": ("device_duty_cycle_percent", "duty_cycle_percent", "device_duty_cycle", "duty_cycle"),
    "idle": ("device_idle_time_percent", "idle_percent", "idle"),
    "communication": (
        "communication_percent",
        "communication_overhead_percent",
        "communication_overhead",
        "communication",
    ),
    "input": ("infeed_percent_average", "input_percent", "input"),
    "host": ("host_percent", "host"),
    "output": ("output_percent", "output"),
    "mxu_utilization": ("mxu_utilization_percent", "mxu_utilization"),
    "hbm_utilization": ("hbm_utilization_percent", "hbm_utilization"),
    "flops_utilization": ("flops_utilization_percent", "flops_utilization", "program_compute_efficiency"),
    "goodput": ("goodput_percent", "goodput"),
}
_NO_COUNTER = ("mxu_utilization", "hbm_utilization")
ABSENT = "The JSON export does not hold it."


def describe(files: Sequence[tuple[Path, str]]) -> list[str]:
    """Names of the tools whose exports the files hold."""
    return sorted({piece.tool for path, name in files for piece in pieces(load(path, name), name)})


def read(found: Sequence[tuple[Path, str]], files: Sequence[SourceFile]) -> StepProfile:
    """The StepProfile of the exports [(path, name), …] of one session."""
    parts = [piece for path, name in found for piece in pieces(load(path, name), name)]
    reasons: dict[str, str] = {}
    computed: dict[str, str] = {}
    notes = [Note(_severity(level), text(message)) for part in parts for level, message in part.notes if message]
    device = _device(parts)
    steps = [step for part in parts for step in _steps(part)]
    step_time = _first_time(
        parts, ("steptime_ms_average", "step_time", "average_step_time", "avg_step_time", "mean_step_time")
    )
    ops, dropped, op_notes = merge_ops(parts, step_time, reasons, computed)
    notes += op_notes
    kpis = _kpis(parts, step_time, bool(ops), device, computed)
    for key in KPI_KEYS:
        if kpis[key] is None:
            reasons[key] = ABSENT
    if step_time is None:
        reasons["step_time"] = ABSENT
    if not steps:
        reasons["steps"] = ABSENT
    if not ops:
        reasons["ops"] = "The JSON export holds no op."
    for key in ("flops", "hbm_bytes"):
        if not any(getattr(op, key) for op in ops):
            reasons[key] = ABSENT
    memory = _memory(parts)
    if memory.peak_bytes is None:
        reasons["memory"] = ABSENT
    if step_time is None and not ops and all(value is None for value in kpis.values()):
        raise IngestError(
            f"{found[0][1]} holds no measurement: no step time, no KPI and no op.",
            "Check that the session recorded at least one step on an accelerator.",
            found[0][1],
            kind="empty",
        )
    if dropped is None and ops:
        notes.append(Note("warning", f"The export lists {len(ops)} ops; how many it left out is not known."))
    elif dropped:
        notes.append(Note("info", f"The export left out {dropped:,} smaller ops."))
    return StepProfile(
        provenance="measured",
        source_kind="xprof_json",
        device=device,
        files=tuple(files),
        step_time_s=step_time,
        step_time_min_s=_first_time(parts, ("steptime_ms_minimum", "step_time_min")),
        step_time_max_s=_first_time(parts, ("steptime_ms_maximum", "step_time_max")),
        step_time_stdev_s=_first_time(parts, ("steptime_ms_standard_deviation", "step_time_stdev")),
        steps=tuple(steps),
        kpis=kpis,
        not_measured=reasons,
        ops=tuple(ops),
        ops_dropped=dropped if ops else None,
        memory=memory,
        notes=tuple(notes),
        converter="JSON export",
        computed=computed,
        label="JSON export",
    )


def _severity(level: str) -> str:
    lowered = level.lower()
    return "error" if "error" in lowered else "warning" if "warn" in lowered else "info"


def _lookup(parts: Sequence[Piece], keys: Sequence[str]) -> tuple[Piece, str, Any] | None:
    for key in keys:
        for part in parts:
            if part.kpis.get(key) is not None:
                return part, key, part.kpis[key]
    return None


def _first_time(parts: Sequence[Piece], names: Sequence[str]) -> float | None:
    for part in parts:
        for name in names:
            if "_ms_" in name:  # XProf puts the unit in the middle
                value = at_least_zero(part.kpis.get(name), part.file, name)
                seconds = value[0] * 1e-3 if value else None
            else:
                seconds = time_s(part.kpis, (name,), part.file, "")
            if seconds:
                return seconds
    return None


def _device(parts: Sequence[Piece]) -> Device:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= {key: value for key, value in part.device.items() if key not in merged}
        for key in ("device_type", "device_core_count", "core_count", "host_count", "chip", "accelerator"):
            if key in part.kpis:
                merged.setdefault(key, part.kpis[key])
    kind = text(merged.get("device_type") or merged.get("accelerator") or merged.get("chip") or "", 200)

    def count(*keys: str) -> int:
        values = [number(merged.get(key)) for key in keys]
        return int(next((value for value in values if value and 0 < value < 1e9), 0))

    flops, hbm = number(merged.get("peak_flop_rate")), number(merged.get("peak_hbm_bw"))
    return Device(
        kind=kind or "unknown",
        chip=chip_from_device_type(kind) if kind else None,
        core_count=count("device_core_count", "core_count"),
        host_count=count("host_count"),
        peak_flops_per_s=flops * 1e9 if flops else None,
        peak_hbm_bytes_per_s=hbm * GIB if hbm else None,
    )


def _steps(part: Piece) -> list[Step]:
    return [step for position, row in enumerate(part.steps) if (step := gpu_step(row, position)) is not None]


def _kpis(
    parts: Sequence[Piece], step_time: float | None, has_ops: bool, device: Device, computed: dict[str, str]
) -> dict[str, float | None]:
    values: dict[str, float | None] = dict.fromkeys(KPI_KEYS)
    for kpi, keys in _KPI_KEYS.items():
        found = _lookup(parts, keys)
        if found is None:
            continue
        part, key, raw = found
        value = at_least_zero(raw, part.file, key)
        if value is None:
            continue
        share = value[0] / 100 if value[1] == "%" or "percent" in key or value[0] > 1.5 else value[0]
        if share > 1.02:
            raise wrong(part.file, key, raw, "a share of at most 100 %")
        if part.tool == "overview_page" and share == 0 and (not has_ops or kpi in _NO_COUNTER or step_time is None):
            continue  # XProf prints 0 for what was never recorded
        values[kpi] = min(share, 1.0)
    if values["flops_utilization"] == 0:
        values["flops_utilization"] = None  # no FLOPs were recorded
    bandwidth = _lookup(parts, ("program_hbm_bw",))
    if values["hbm_utilization"] is None and bandwidth and device.peak_hbm_bytes_per_s:
        used = number(bandwidth[2])
        if used:
            values["hbm_utilization"] = used * GIB / device.peak_hbm_bytes_per_s
            computed["hbm_utilization"] = FORMULAS["hbm_utilization"]
    if step_time:
        for kpi, name in (("duty_cycle", "tc_busy_time"), ("communication", "mean_all_reduce")):
            seconds = _first_time(parts, (name,))
            if values[kpi] is None and seconds is not None and seconds <= step_time * 1.02:
                values[kpi] = min(seconds / step_time, 1.0)
                computed[kpi] = f"{name} / step_time, both as exported"
    return values


def _memory(parts: Sequence[Piece]) -> Memory:
    memories: list[Memory] = []
    for part in parts:
        for allocator in part.allocators.values():
            summary = allocator.get("profileSummary") if isinstance(allocator, dict) else None
            if not isinstance(summary, dict):
                continue
            stats = summary.get("peakStats")
            in_use = number(stats.get("peakBytesInUse")) if isinstance(stats, dict) else None
            peak = number(summary.get("peakBytesUsageLifetime")) or in_use
            capacity = number(summary.get("memoryCapacity"))
            if peak:
                memories.append(Memory(peak, capacity or None))
        gib = number(part.kpis.get("peak_hbm_gib"))
        if gib:
            memories.append(Memory(gib * GIB))
    curves = [part.allocators for part in parts if part.allocators]
    heaps = [heap for part in parts if part.heap and (heap := heap_schedule(part.heap)) is not None]
    return replace(
        worst(memories),
        schedule=max(heaps, key=lambda heap: heap.peak_bytes, default=None),
        allocator=allocator_curve(curves[0]) if curves else None,
    )
