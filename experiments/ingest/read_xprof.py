"""XProf's tables and the cores' timelines → StepProfile.

Traps handled here: roofline shares are 0–1 and its bandwidths GiB/s, overview percentages are text 0–100; on a TPU
`flop_rate_utilization_relative_to_roofline` is always 0, so utilisation comes from the roofline's Program row; XProf's
step time is the slowest core's and is a mean here; tables of a profile without device ops are all zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import formatting
from experiments.ingest.convert import Tables
from experiments.ingest.cut_steps import whole_steps
from experiments.ingest.kernel_ops import ENOUGH, Kernels, named_ops, shortened, with_collectives_named
from experiments.ingest.kpis import FORMULAS, Kpis, from_overview, from_overview_shares, from_timelines
from experiments.ingest.roof import Peaks, notes_on_roof, notes_on_utilization, peaks_of
from experiments.ingest.steps import (
    core_values,
    cut_notes,
    executed_program,
    gpu_steps,
    step_times,
    strips,
    timeline_steps,
)
from experiments.ingest.timeline import CoreTimeline, over_cores
from experiments.ingest.values import GIB, gviz_rows, number, text
from experiments.ingest.xprof_ops import (
    read_ops,
    roofline_rows,
    shares_of_steps,
    with_cpu_shares,
    with_host_bytes,
)
from experiments.step_profile import Device, Memory, Note, Op, Recorded, SourceFile, Step, StepProfile

_MAX_STEPS = 20_000

ESTIMATED = (
    "The profile has no step markers: the step time is estimated from {count:,} executions of {program}. Profile "
    "with jax.profiler.StepTraceAnnotation around the training step to measure it."
)
NO_STEPS = "The profile has no step markers. Profile with jax.profiler.StepTraceAnnotation around the training step."
ON_CPU = "Not measured: recorded on CPU, without an accelerator."
NO_OPS = "No device op was recorded."


def read(
    tables: Tables,
    *,
    cores: Sequence[CoreTimeline],
    hosts: int,
    on_cpu: bool,
    has_threads: bool,
    files: Sequence[SourceFile],
    memory: Memory,
    notes: Sequence[Note],
    label: str = "",
    silent: int = 0,
    memory_bytes: float | None = None,
    kernels: Callable[[set[tuple[str, str]]], Kernels] | None = None,
) -> StepProfile:
    """The StepProfile of one converted session.

    silent: devices without any op beside the cores.  memory_bytes: of one device.  kernels: reads those of a GPU, or
    the ops of a host, that are not among the (program id, op) given; called where XProf's table leaves out too many.
    """
    stats = tables.op_stats
    kind = "CPU" if on_cpu else str(stats.run_environment.device_type) or "unknown"
    on_tpu = "TPU" in kind.upper()
    peaks = Peaks(None, None) if on_cpu else peaks_of(stats, kind, memory_bytes)
    ops = read_ops(stats, tables.roofline, peaks.flops_per_s, peaks.hbm_bytes_per_s, own_peaks=bool(peaks.note))
    if on_cpu:
        ops = with_cpu_shares(ops, cores)
    ops = with_collectives_named(with_host_bytes(ops))
    ids = {text(name, 200): str(key) for key, name in dict(stats.program_id_to_name_map).items()}
    programs = [ids.get(op.program, op.program) for op in ops]
    kernel_ops, kernel_notes = _kernels(stats, ops, cores, kernels) if kernels is not None and not on_tpu else ([], [])
    ops = over_cores(
        cores,
        [*ops, *(op for op, _ in kernel_ops)],
        [*programs, *(program for _, program in kernel_ops)],
    )
    if kernel_ops:
        ops = shortened(sorted(ops, key=lambda op: (-op.self_time_s, op.name)))
        ops = [replace(op, rank=rank) for rank, op in enumerate(ops, 1)]
    steps, step_notes = _steps(tables.overview, cores, by_host=not on_tpu and not on_cpu)
    program = executed_program(cores) if steps else ""
    widened = 1.0
    if program:
        ops, widened = shares_of_steps(ops, cores, stats.device_op_metrics_db.total_time_ps * 1e-12)
    kpis = Kpis()
    if ops or cores:
        stepped = [core for core in cores if core.numbers]
        from_timelines(kpis, stepped if program else cores, silent, len(cores))
        if not on_cpu:
            from_overview(kpis, tables.overview, on_tpu=on_tpu, has_steps=bool(steps), executed=bool(program))
            _utilization(kpis, tables.roofline, stats, ops, peaks, widened)
        if on_cpu:
            _waiting(kpis, steps)
    if program:
        _per_execution(kpis, program, tables.overview if on_tpu else None, widened)
    why = ON_CPU if on_cpu else NO_OPS if not ops else NO_STEPS if not steps else "Not reported by XProf."
    kpis.explain(why)
    reasons = dict(kpis.reasons)
    computed = dict(kpis.computed)
    if not ops:
        reasons["ops"] = NO_OPS
    if not steps:
        reasons["step_time"] = NO_STEPS
    if not steps or program:
        reasons["steps"] = NO_STEPS
    if program:
        if widened > 1.01:
            computed["time_share"] = (
                f"self time / time of the executions of {program}; XProf's covers the whole recording"
            )
        computed["step_time"] = f"from one execution of {program} to the next; the profile has no step markers"
        computed["steps"] = f"executions of {program}"
    if memory.peak_bytes is None:
        reasons["memory"] = "The profile contains no device memory-allocator events."
    if not any(op.flops for op in ops):
        reasons["flops"] = ON_CPU if on_cpu else "The profile contains no FLOP counts."
    if not any(op.hbm_bytes for op in ops):
        reasons["hbm_bytes"] = ON_CPU if on_cpu else "The profile contains no memory traffic."
    for key, value in (("peak_flops", peaks.flops_per_s), ("peak_hbm", peaks.hbm_bytes_per_s)):
        if value is None:
            reasons[key] = ON_CPU if on_cpu else "The profile does not report the device's peak."
    said = [*notes, *kernel_notes, *step_notes]
    if program:
        said.append(Note("warning", ESTIMATED.format(count=len(steps), program=program)))
    if peaks.note:
        said.append(Note("info", peaks.note))
    said += [*notes_on_roof(ops), *notes_on_utilization(kpis.values)]
    said += _diagnostics(tables.overview, on_cpu or bool(program), [label, *(note.message for note in notes)])
    count = len(cores) if on_cpu else max(int(stats.run_environment.device_core_count), len(cores))
    return StepProfile(
        provenance="reconstructed" if label else "measured",
        source_kind="xplane",
        device=Device(
            kind=kind,
            chip=None if on_cpu else peaks.chip,
            core_count=count,
            host_count=hosts,
            peak_flops_per_s=peaks.flops_per_s,
            peak_hbm_bytes_per_s=peaks.hbm_bytes_per_s,
            recorded_cores=len(cores) if silent else None,
            memory_bytes=memory_bytes,
        ),
        files=tuple(files),
        **step_times([step.time_s for step in steps]),
        steps=tuple(steps[:_MAX_STEPS]),
        cores=tuple(core_values(cores)),
        kpis=kpis.values,
        not_measured=reasons,
        ops=tuple(ops),
        ops_dropped=0,
        memory=memory,
        notes=tuple(said),
        converter=tables.converter,
        computed=computed,
        label=label or ("CPU recording" if on_cpu else ""),
        timeline=strips(cores),
        recorded=Recorded(
            ("host ops",) if has_threads else (),
        ),
    )


def _kernels(
    stats: Any,
    ops: Sequence[Op],
    cores: Sequence[CoreTimeline],
    read_kernels: Callable[[set[tuple[str, str]]], Kernels],
) -> tuple[list[tuple[Op, str]], list[Note]]:
    """Kernels that XProf names no op for, and a note, where its ops cover too little of the kernels' time."""
    whole = sum(core.op_s for core in cores)
    if sum(op.self_time_s for op in ops) >= ENOUGH * whole:
        return [], []
    kernels = read_kernels(named_ops(stats))
    if not kernels.sums:
        return [], []
    profiled = stats.device_op_metrics_db.total_time_ps * 1e-12 or sum(core.span_s for core in cores)
    return kernels.ops(profiled), [kernels.note(min(kernels.time_s / whole, 1.0))]


def _steps(overview: list[Any], cores: Sequence[CoreTimeline], *, by_host: bool) -> tuple[list[Step], list[Note]]:
    """(whole steps, notes on those that were cut off).

    by_host: XProf's own table comes first, which follows kernels to the host's markers.
    """
    if by_host and (marked := gpu_steps(overview)):
        return whole_steps(marked)
    return timeline_steps(cores), cut_notes(cores)


def _diagnostics(overview: list[Any], on_cpu: bool, known: Sequence[str]) -> list[Note]:
    """XProf's own remarks, from the last table of its overview; it repeats the warnings written in the files."""
    notes: list[Note] = []
    for row in (row for table in overview for row in gviz_rows(table) if "severity" in row):
        message = text(row.get("message"))
        # A CPU recording is converted without its host threads, so XProf misses the steps that we read from them.
        repeated = any(said.endswith(message) for said in known)
        if message and not repeated and not (on_cpu and "step" in message.lower()):
            level = str(row.get("severity")).lower()
            notes.append(Note(level if level in ("error", "warning") else "info", message))
    return notes


def _utilization(kpis: Kpis, roofline: list[Any], stats: Any, ops: Sequence[Op], peaks: Peaks, widened: float) -> None:
    """Hardware counters where the profile has them, else the Program row of XProf's roofline."""
    counters = stats.performance_counter_result
    for key, value in (
        ("mxu_utilization", number(counters.matrix_unit_utilization_percent)),
        ("hbm_utilization", number(counters.hbm_utilization_percent)),
    ):
        if value:  # merged hosts without counters state 0
            kpis.put(key, value / 100)
    kpis.reason("mxu_utilization", "The profile contains no hardware performance counters.")
    _, program = roofline_rows(roofline)
    properties = roofline[0].get("p") or {} if roofline and isinstance(roofline[0], dict) else {}
    if program is None:
        return
    if any(op.flops for op in ops):
        kpis.put_utilization("flops_utilization", number(program.get("compute_efficiency")), ops, "compute", widened)
    kpis.reason("flops_utilization", "The profile contains no FLOP counts.")
    peak = number(properties.get("peak_hbm_bw"))
    used = number(program.get("hbm_bw"))
    if kpis.values["hbm_utilization"] is None and peak and used is not None and any(op.hbm_bytes for op in ops):
        if peaks.hbm_stated_bytes_per_s and peaks.hbm_bytes_per_s:
            kpis.put_utilization("hbm_utilization", used * GIB / peaks.hbm_bytes_per_s, ops, "hbm", widened)
            beside = f"XProf's {formatting.share(used / peak)} is relative to half that peak"
            kpis.computed["hbm_utilization"] += f"; {beside}"
        else:
            kpis.put_utilization("hbm_utilization", used / peak, ops, "hbm", widened)
    kpis.reason("hbm_utilization", "The profile contains no memory traffic or no peak bandwidth.")


def _per_execution(kpis: Kpis, program: str, overview: list[Any] | None, widened: float) -> None:
    """Say of every KPI that it is of the executions, and what XProf states of the whole recording.

    overview: of a TPU, whose duty cycle and idle time XProf states.
    """
    stated = from_overview_shares(overview) if overview else {}
    kpis.values["goodput"] = None
    kpis.computed.pop("goodput", None)
    kpis.reason("goodput", "The profile has no step markers, so productive time is unknown.")
    for key in ("duty_cycle", "idle", "communication"):
        if key in kpis.computed:
            whole = stated.get(key)
            beside = f"; XProf's {formatting.share(whole)} covers the whole recording" if whole is not None else ""
            kpis.computed[key] += f", within the executions of {program}{beside}"
    if widened > 1.01:
        times = formatting.plain(widened, "speedup")
        for key in ("flops_utilization", "hbm_utilization"):
            if key in kpis.computed:
                kpis.computed[key] += f"; within the executions of {program}, {times} XProf's value"


def _waiting(kpis: Kpis, steps: Sequence[Step]) -> None:
    """Input and output of a CPU recording, where it has such ops."""
    total = sum(step.time_s for step in steps)
    for key in ("input", "output"):
        if total > 0 and any(key in step.breakdown_s for step in steps):
            kpis.put(key, sum(step.breakdown_s.get(key, 0.0) for step in steps) / total, FORMULAS[key])
    for key in ("input", "host", "output"):
        kpis.reason(key, "On CPU, waiting for input or host cannot be separated from other idle time.")
