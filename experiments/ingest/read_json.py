"""XProf's JSON exports → StepProfile: full tables, or as thin as KPIs and the five largest ops.

What an export does not hold is not measured, with the reason.  Tables of one upload complete each other by op name.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import formatting
from experiments.ingest.cut_steps import whole_steps
from experiments.ingest.errors import IngestError
from experiments.ingest.json_documents import NothingKnown, load, pieces
from experiments.ingest.json_kpis import ABSENT, first_time, read_kpis
from experiments.ingest.json_ops import merge_ops, with_efficiencies
from experiments.ingest.json_rows import CoreStep, Piece
from experiments.ingest.memory_tables import allocator_curve, heap_schedule, worst
from experiments.ingest.roof import notes_on_roof, notes_on_utilization
from experiments.ingest.steps import StepTimes, gpu_step, step_times
from experiments.ingest.values import GIB, number, text
from experiments.step_profile import Core, Device, Memory, Note, SourceFile, Step, StepProfile
from perfmodel.chips import chip_of_device


def read(uploads: Sequence[tuple[Path, str]], files: Sequence[SourceFile]) -> StepProfile:
    """The StepProfile of the exports [(path, name), …] of one session."""
    parts, notes = _parts(uploads)
    reasons: dict[str, str] = {}
    computed: dict[str, str] = {}
    notes += [Note(_severity(level), text(message)) for part in parts for level, message in part.notes if message]
    device = _device(parts)
    steps, times, step_notes = _step_times(parts, computed)
    step_s = times["step_time_s"]
    notes += step_notes
    ops, dropped, op_notes = merge_ops(parts, step_s, reasons, computed)
    ops = with_efficiencies(ops, device.peak_flops_per_s, device.peak_hbm_bytes_per_s)
    notes += [*op_notes, *notes_on_roof(ops)]
    kpis = read_kpis(parts, step_s, steps, ops, device)
    notes += notes_on_utilization(kpis.values)
    reasons |= kpis.reasons
    computed |= kpis.computed
    if step_s is None:
        reasons["step_time"] = ABSENT
    if not steps:
        reasons["steps"] = ABSENT
    if not ops:
        reasons["ops"] = "The JSON export contains no ops."
    for key in ("flops", "hbm_bytes"):
        if not any(getattr(op, key) for op in ops):
            reasons[key] = ABSENT
    memory = _memory(parts, computed)
    if memory.peak_bytes is None:
        reasons["memory"] = ABSENT
    nothing = step_s is None and not ops and all(value is None for value in kpis.values.values())
    if nothing and memory.peak_bytes is not None:
        notes.append(
            Note("warning", "The export contains only memory: add overview_page and hlo_stats of the session.")
        )
    elif nothing:
        tools = sorted({part.tool for part in parts if part.tool not in ("kpis", "ops", "overview_page")})
        held = f" It is XProf's {tools[0]}." if len(uploads) == 1 and tools else ""
        raise IngestError(
            f"{uploads[0][1]} contains no measurements: no step time, no KPIs and no ops.{held}",
            "Add overview_page and hlo_stats of the same session, which must have recorded a step on an accelerator.",
            uploads[0][1],
            kind="empty",
        )
    if dropped is None and ops:
        notes.append(Note("warning", f"The export lists {len(ops)} ops; the number omitted is unknown."))
    elif dropped:
        notes.append(Note("info", f"The export omits {dropped:,} smaller ops."))
    return StepProfile(
        provenance="measured",
        source_kind="xprof_json",
        device=device,
        files=tuple(files),
        **times,
        steps=steps,
        cores=_cores(parts, steps),
        kpis=kpis.values,
        not_measured=reasons,
        ops=tuple(ops),
        ops_dropped=dropped if ops else None,
        memory=memory,
        notes=tuple(notes),
        converter="JSON export",
        computed=computed,
        label="JSON export",
    )


def _parts(files: Sequence[tuple[Path, str]]) -> tuple[list[Piece], list[Note]]:
    """What the files hold; beside others, one that holds nothing we use is named."""
    parts: list[Piece] = []
    unused: list[str] = []
    first: IngestError | None = None
    for path, name in files:
        document = load(path, name)
        try:
            parts += pieces(document, name)
        except NothingKnown as error:
            unused.append(name)
            first = first or error
    if not parts and first is not None:
        raise first
    if not unused:
        return parts, []
    said = "contains neither KPIs nor ops and is" if len(unused) == 1 else "contain neither KPIs nor ops and are"
    return parts, [Note("info", f"{formatting.first(unused, 3)} {said} not used.")]


def _severity(level: str) -> str:
    lowered = level.lower()
    return "error" if "error" in lowered else "warning" if "warn" in lowered else "info"


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
    peak, bandwidth = flops * 1e9 if flops else None, hbm * GIB if hbm else None
    return Device(
        kind=kind or "unknown",
        chip=chip_of_device(kind, peak_flops_per_s=peak, hbm_bytes_per_s=bandwidth) if kind else None,
        core_count=count("device_core_count", "core_count"),
        host_count=count("host_count"),
        peak_flops_per_s=peak,
        peak_hbm_bytes_per_s=bandwidth,
    )


#: Where XProf and reports state the mean time of steps.
_MEAN_STEP = ("steptime_ms_average", "step_time", "average_step_time", "avg_step_time", "mean_step_time")


def _step_times(parts: Sequence[Piece], computed: dict[str, str]) -> tuple[tuple[Step, ...], StepTimes, list[Note]]:
    """(whole steps, step times as XProf states them, notes); the times are those of the whole steps of its table where
    the recording cut steps off."""
    times = StepTimes(
        step_time_s=first_time(parts, *_MEAN_STEP),
        step_time_min_s=first_time(parts, "steptime_ms_minimum", "step_time_min"),
        step_time_max_s=first_time(parts, "steptime_ms_maximum", "step_time_max"),
        step_time_stdev_s=first_time(parts, "steptime_ms_standard_deviation", "step_time_stdev"),
    )
    listed, source = _listed_steps(parts)
    steps, cut = whole_steps(listed)
    mean = times["step_time_s"]
    if steps and (cut or mean is None):
        beside = f"; its {formatting.plain(mean, 's')} include truncated steps" if mean and cut else ""
        computed["step_time"] = f"mean of the {len(steps)} whole steps of XProf's {source}{beside}"
        times = step_times([step.time_s for step in steps])
    return tuple(steps), times, cut


def _listed_steps(parts: Sequence[Piece]) -> tuple[list[Step], str]:
    """(steps in order, the tool that lists them): several tools list the same steps."""
    for part in sorted(parts, key=lambda part: part.tool != "overview_page"):
        steps = [step for position, row in enumerate(part.steps) if (step := gpu_step(row, position)) is not None]
        if steps:
            return steps, part.tool
    for part in parts:
        rows: dict[int, list[CoreStep]] = {}
        for said in part.core_steps:
            rows.setdefault(said[0], []).append(said)
        if rows:
            return [_mean_step(step, rows[step]) for step in sorted(rows)], part.tool
    return [], ""


def _mean_step(step: int, cores: Sequence[CoreStep]) -> Step:
    return Step(step, statistics.fmean(said[3] for said in cores), _mean_parts([said[4] for said in cores]))


def _mean_parts(splits: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for split in splits for name in split})
    return {name: statistics.fmean(split.get(name, 0.0) for split in splits) for name in names}


def _cores(parts: Sequence[Piece], steps: Sequence[Step]) -> tuple[Core, ...]:
    """Each core's mean over the whole steps, where the pod viewer lists them."""
    kept = {step.number for step in steps}
    by_core: dict[tuple[str, str], list[dict[str, float]]] = {}
    for part in parts:
        for step, core, host, _, split in part.core_steps:
            if step in kept and split:
                by_core.setdefault((host, core), []).append(split)
    return tuple(Core(core, host, _mean_parts(splits)) for (host, core), splits in by_core.items())


def _memory(parts: Sequence[Piece], computed: dict[str, str]) -> Memory:
    """Peak of the fullest device; without a memory profile, what the largest program allocates by its compiler."""
    memories: list[Memory] = []
    for part in parts:
        for allocator in part.allocators.values():
            summary = allocator.get("profileSummary") if isinstance(allocator, dict) else None
            if not isinstance(summary, dict):
                continue
            stats = summary.get("peakStats")
            in_use = number(stats.get("peakBytesInUse")) if isinstance(stats, dict) else None
            # The lifetime's peak is of the heap; in use are heap and stack.
            peak = max(number(summary.get("peakBytesUsageLifetime")) or 0.0, in_use or 0.0)
            capacity = number(summary.get("memoryCapacity"))
            if peak:
                memories.append(Memory(peak, capacity or None))
        gib = number(part.kpis.get("peak_hbm_gib"))
        if gib:
            memories.append(Memory(gib * GIB))
    planned = max(
        (part for part in parts if part.planned_bytes), key=lambda part: part.planned_bytes or 0, default=None
    )
    curves = [part.allocators for part in parts if part.allocators]
    heaps = [heap for part in parts if part.heap and (heap := heap_schedule(part.heap)) is not None]
    memory = worst(memories)
    if not memories and planned is not None:
        computed["memory"] = (
            f"buffer assignment of {planned.program or 'the largest program'}: as compiled, not measured"
        )
        memory = Memory(planned.planned_bytes)
    return replace(
        memory,
        schedule=max(heaps, key=lambda heap: heap.peak_bytes, default=None),
        allocator=allocator_curve(curves[0]) if curves else None,
    )
