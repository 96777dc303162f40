"""XProf's tables and the cores' timelines → StepProfile.

Traps handled here: roofline shares are 0–1 and its bandwidths GiB/s, overview percentages are text 0–100; on a TPU
`flop_rate_utilization_relative_to_roofline` is always 0, so utilisation comes from the roofline's Program row; XProf's
step time is the slowest core's and is a mean here; tables of a profile without device ops are all zero.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.ingest.convert import Tables
from experiments.ingest.exposure import over_cores
from experiments.ingest.kpis import FORMULAS, Kpis, from_overview, from_timelines
from experiments.ingest.steps import core_values, gpu_steps, timeline_steps
from experiments.ingest.strips import strips
from experiments.ingest.timeline import CoreTimeline
from experiments.ingest.transfers import with_host_bytes
from experiments.ingest.validate import HostFacts
from experiments.ingest.values import gviz_rows, hlo_text, number, text
from experiments.step_profile import Device, Memory, Note, Op, SourceFile, Step, StepProfile
from perfmodel.chips import chip_from_device_type

_HBM_SPACE = 1
_MAX_STEPS = 20_000
#: Beyond this rank, HLO text is shortened: the tail of tens of thousands of ops weighs nothing.
_FULL_TEXT_OPS = 3_000
_TAIL_CHARACTERS = 600

NO_STEPS = "The profile marks no steps. Profile with jax.profiler.StepTraceAnnotation around the training step."
ON_CPU = "Not measured on CPU: there is no accelerator in this recording."
NO_OPS = "No device op was recorded."


def read(
    tables: Tables,
    *,
    cores: Sequence[CoreTimeline],
    facts: Sequence[HostFacts],
    files: Sequence[SourceFile],
    memory: Memory,
    notes: Sequence[Note],
    label: str = "",
    op_times: Sequence[dict[tuple[str, str], tuple[int, int]]] = (),
    silent: int = 0,
) -> StepProfile:
    """The StepProfile of one converted session.

    op_times: occurrences and picoseconds by (module, op) of each host of a CPU recording.  silent: devices without any
    op beside the cores.
    """
    on_cpu = any(host.is_cpu for host in facts)
    stats = tables.op_stats
    peak_flops, peak_hbm = (None, None) if on_cpu else _peaks(stats)
    ops = _ops(stats, tables.roofline, peak_flops, peak_hbm)
    if on_cpu:
        ops = _on_cpu(ops or _ops_without_hlo(op_times), cores)
    ops = with_host_bytes(ops)
    ids = {text(name, 200): str(key) for key, name in dict(stats.program_id_to_name_map).items()}
    ops = over_cores(
        ((f"{core.host} {core.name}", core.op_times) for core in cores),
        ops,
        [ids.get(op.program, op.program) for op in ops],
    )
    kind = "CPU" if on_cpu else str(stats.run_environment.device_type) or "unknown"
    on_tpu = "TPU" in kind.upper()
    steps = timeline_steps(cores) if on_tpu or on_cpu else gpu_steps(tables.overview)
    kpis = Kpis()
    if ops or cores:
        from_timelines(kpis, cores, silent)
        if not on_cpu:
            from_overview(kpis, tables.overview, on_tpu=on_tpu, has_steps=bool(steps))
            _utilization(kpis, tables.roofline, stats, ops)
        if on_cpu:
            _waiting(kpis, steps)
    why = ON_CPU if on_cpu else NO_OPS if not ops else NO_STEPS if not steps else "XProf does not state it."
    kpis.explain(why)
    reasons = dict(kpis.reasons)
    if not ops:
        reasons["ops"] = NO_OPS
    if not steps:
        reasons["step_time"] = reasons["steps"] = NO_STEPS
    if memory.peak_bytes is None:
        reasons["memory"] = "The profile holds no event of the device's memory allocator."
    if not any(op.flops for op in ops):
        reasons["flops"] = ON_CPU if on_cpu else "The profile holds no FLOP counts."
    if not any(op.hbm_bytes for op in ops):
        reasons["hbm_bytes"] = ON_CPU if on_cpu else "The profile holds no memory traffic."
    for key, value in (("peak_flops", peak_flops), ("peak_hbm", peak_hbm)):
        if value is None:
            reasons[key] = ON_CPU if on_cpu else "The profile does not state the device's peak."
    times = [step.time_s for step in steps]
    hosts = len(facts)
    return StepProfile(
        provenance="reconstructed" if label else "measured",
        source_kind="xplane",
        device=Device(
            kind=kind,
            chip=None if on_cpu else chip_from_device_type(kind),
            core_count=len(cores) if on_cpu else max(int(stats.run_environment.device_core_count), len(cores)),
            host_count=hosts,
            peak_flops_per_s=peak_flops,
            peak_hbm_bytes_per_s=peak_hbm,
        ),
        files=tuple(files),
        step_time_s=statistics.fmean(times) if times else None,
        step_time_min_s=min(times, default=None),
        step_time_max_s=max(times, default=None),
        step_time_stdev_s=statistics.pstdev(times) if len(times) > 1 else None,
        steps=tuple(steps[:_MAX_STEPS]),
        cores=tuple(core_values(cores)),
        kpis=kpis.values,
        not_measured=reasons,
        ops=tuple(ops),
        ops_dropped=0,
        memory=memory,
        notes=(*notes, *_diagnostics(tables.overview, on_cpu, [label, *(note.message for note in notes)])),
        converter=tables.converter,
        computed=kpis.computed,
        label=label or ("CPU recording" if on_cpu else ""),
        timeline=strips(cores),
    )


def _peaks(stats: Any) -> tuple[float | None, float | None]:
    """Peak FLOP/s and HBM bytes/s of one core, as the profile states them (decimal units)."""
    environment = stats.perf_env
    flops = number(environment.peak_tera_flops_per_second) or 0.0
    bandwidths = list(environment.peak_bws_giga_bytes_per_second)
    hbm = number(bandwidths[0] if bandwidths else environment.peak_hbm_bw_giga_bytes_per_second) or 0.0
    return (flops * 1e12 if flops > 0 else None), (hbm * 1e9 if hbm > 0 else None)


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


def _roofline_rows(roofline: list[Any]) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any] | None]:
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
    return by_op, programs.get("Average") or programs.get("Total")


def _utilization(kpis: Kpis, roofline: list[Any], stats: Any, ops: Sequence[Op]) -> None:
    counters = stats.performance_counter_result
    for key, value in (
        ("mxu_utilization", number(counters.matrix_unit_utilization_percent)),
        ("hbm_utilization", number(counters.hbm_utilization_percent)),
    ):
        if value:  # merged hosts without counters state 0
            kpis.put(key, value / 100)
    kpis.reason("mxu_utilization", "The profile holds no hardware performance counters.")
    _, program = _roofline_rows(roofline)
    properties = roofline[0].get("p") or {} if roofline and isinstance(roofline[0], dict) else {}
    if program is None:
        return
    if any(op.flops for op in ops):
        kpis.put("flops_utilization", number(program.get("compute_efficiency")), FORMULAS["flops_utilization"])
    kpis.reason("flops_utilization", "The profile holds no FLOP counts.")
    peak = number(properties.get("peak_hbm_bw"))
    used = number(program.get("hbm_bw"))
    if kpis.values["hbm_utilization"] is None and peak and used is not None and any(op.hbm_bytes for op in ops):
        kpis.put("hbm_utilization", used / peak, FORMULAS["hbm_utilization"])
    kpis.reason("hbm_utilization", "The profile holds no memory traffic or no peak bandwidth.")


def _waiting(kpis: Kpis, steps: Sequence[Step]) -> None:
    """Input and output of a CPU recording, where it has such ops."""
    total = sum(step.time_s for step in steps)
    for key in ("input", "output"):
        if total > 0 and any(key in step.breakdown_s for step in steps):
            kpis.put(key, sum(step.breakdown_s.get(key, 0.0) for step in steps) / total, FORMULAS[key])
    for key in ("input", "host", "output"):
        kpis.reason(key, "On CPU, waiting for input or host cannot be told from other idle time.")


def _ops(stats: Any, roofline: list[Any], peak_flops: float | None, peak_hbm: float | None) -> list[Op]:
    """Every op, by descending self time."""
    database = stats.device_op_metrics_db
    found = [metric for metric in database.metrics_db if metric.category != "IDLE" and metric.self_time_ps > 0]
    found.sort(key=lambda metric: (-metric.self_time_ps, metric.name))
    total_ps = database.total_time_ps or sum(metric.self_time_ps for metric in found)
    programs = dict(stats.program_id_to_name_map)
    table, _ = _roofline_rows(roofline)
    has_flops = any(metric.flops_v2 or metric.flops for metric in found)
    has_bytes = any(metric.bytes_accessed for metric in found)
    ops: list[Op] = []
    for rank, metric in enumerate(found, 1):
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
        row = table.get((str(metric.hlo_module_id), metric.name), {})
        computed = _efficiency(flops_rate, hbm_rate, peak_flops, peak_hbm)
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


def _efficiency(
    flops_rate: float | None, hbm_rate: float | None, peak_flops: float | None, peak_hbm: float | None
) -> tuple[float | None, float | None, float | None]:
    """(roofline, compute, bandwidth) as XProf defines them, for ops beyond the 1000 of its roofline table."""
    compute = flops_rate / peak_flops if flops_rate is not None and peak_flops else None
    bandwidth = hbm_rate / peak_hbm if hbm_rate is not None and peak_hbm else None
    known = [value for value in (compute, bandwidth) if value is not None]
    return (max(known) if known else None), compute, bandwidth


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


def _ops_without_hlo(hosts: Sequence[dict[tuple[str, str], tuple[int, int]]]) -> list[Op]:
    """Ops of a CPU recording that holds no HLO: their category is what their name begins with."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for host in hosts:
        for key, (count, time_ps) in host.items():
            before = sums.get(key, (0, 0))
            sums[key] = (before[0] + count, before[1] + time_ps)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        Op(
            name=text(name, 500),
            category=name.partition(".")[0][:200] or "unknown",
            occurrences=count,
            self_time_s=time_ps * 1e-12,
            total_time_s=time_ps * 1e-12,
            time_share=0.0,
            program=text(module, 200),
            rank=rank,
        )
        for rank, ((module, name), (count, time_ps)) in enumerate(ordered, 1)
        if time_ps > 0
    ]


def _on_cpu(ops: list[Op], cores: Sequence[CoreTimeline]) -> list[Op]:
    """CPU ops run on several threads per device, so their time is put in relation to the devices' profiled time.

    XLA's cost model counts traffic to memory, which is no HBM here.
    """
    total = max(sum(core.window_s for core in cores), sum(op.self_time_s for op in ops))
    return [
        replace(op, time_share=op.self_time_s / total, hbm_bytes=None, hbm_bytes_per_s=None, bound_by=None)
        for op in ops
    ]
