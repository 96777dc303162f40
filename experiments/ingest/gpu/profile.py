"""Traces of one session, one per rank or file → StepProfile."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import formatting
from experiments.ingest.errors import refuse_twice
from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.device import CPU, UNKNOWN, DeviceTrace, TraceFile
from experiments.ingest.gpu.measure import measure, start_up_ps
from experiments.ingest.gpu.ops import add_devices, read_ops, unique_names
from experiments.ingest.gpu.steps import device_steps, left_over
from experiments.ingest.gpu.waits import waits
from experiments.ingest.kpis import Kpis, from_timelines
from experiments.ingest.marks import REPEATED, Steps
from experiments.ingest.steps import (
    CLOCKS_NS,
    core_values,
    earlier_runs,
    latest_run,
    step_times,
    strips,
    timeline_steps,
)
from experiments.ingest.timeline import CoreTimeline, over_cores
from experiments.step_profile import Device, Memory, Note, Op, Recorded, SourceFile, Step, StepProfile
from experiments.trace import TraceBuilder
from perfmodel.chips import Chip, chip_of_device, get_chip

_MOST_STEPS = 20_000
_MOST_LEFT_OUT = 5
#: A host's mark of less than this part of the longest is none of a step.
FRAGMENT = 0.1
LOST = "Most of what the host launched has no device activity in the recording, so idle time is unknown."
#: More launches at the end without activity than this share of the recorded ops are named.
UNSERVED = 0.1
#: Share of the time of matmuls that must have FLOPs for a rate of the whole to mean anything.
_LEAST_KNOWN = 0.8

GPU_FORMULAS = {
    "step_time": "device step start to next step start, mean over devices and complete steps",
    "duty_cycle": "time with any kernel or copy running / profiled time, mean over devices",
    "idle": "1 − duty cycle",
    "communication": "merged time of collective kernels, including waits for other ranks / profiled time, mean over "
    "devices",
    "input": "time in which the device was idle and its host waited for the data loader / step time",
    "host": "time in which only copies between host and device ran, or the device was idle until a late launch / "
    "step time",
    "host_step_time": "length of the host's marks, mean over ranks and steps; no device activity was recorded",
    "host_window": "time in which the device was idle until a late launch / profiled time",
    "flops_utilization": "FLOPs of the ops whose shapes were recorded / profiled time / peak rate of bf16",
}


def profile(
    recordings: Sequence[TraceFile],
    files: Sequence[SourceFile],
    *,
    source_kind: str,
    no_steps: str,
    notes: Sequence[Note] = (),
    builder: TraceBuilder | None = None,
) -> StepProfile:
    """The StepProfile of one session.  no_steps: why there is no step time where nothing marks steps.  builder: takes
    the events for the timeline.

    Raises IngestError where a device is in two recordings.
    """
    replayed = {each.rank for each in recordings if "graph capture" not in each.recorded.has} - {None}
    captures = [each for each in recordings if "graph capture" in each.recorded.has and each.rank in replayed]
    # A serving engine writes a file of the capture beside that of the replay.
    recordings, earlier = _latest([each for each in recordings if each not in captures])
    refuse_twice(((str(each.rank), each.file) for each in recordings if each.rank is not None), "rank")
    traces = [trace for recording in recordings for trace in recording.devices if len(trace.kind)]
    # Beside devices, what a host did itself is no device.
    traces = [trace for trace in traces if trace.device_name != CPU] or traces
    said = [*notes, *_notes(recordings, traces), *earlier_runs(earlier)]
    said += [Note("info", f"{each.file} captures the graph that another file replays: not used.") for each in captures]
    marked: list[Steps] = []
    for trace in traces:
        steps, left_out = device_steps(trace)
        marked.append(steps)
        said += _left_out(trace, left_out, len(traces) > 1)
    names = unique_names(traces)
    if builder is not None:
        add_devices(builder, traces, marked, names)
    cores = [
        measure(trace, steps, {index: ("", names[kind]) for index, kind in enumerate(trace.kinds) if kind in names})
        for trace, steps in zip(traces, marked, strict=True)
    ]
    device = _device(recordings, traces)
    chip = get_chip(device.chip) if device.chip else None
    ops, dropped = read_ops(traces, marked, names, waits(traces, marked), chip)
    ops = over_cores(cores, ops, [""] * len(ops))
    steps_read = timeline_steps(cores) if traces else host_marks(recordings)
    launched = any((trace.launched != UNKNOWN).any() for trace in traces)
    kpis = _kpis(cores, steps_read, ops, device, chip, launched)
    memory = Memory(
        max((trace.memory_peak_bytes for trace in traces if trace.memory_peak_bytes), default=None),
        max((trace.memory_capacity_bytes for trace in traces if trace.memory_capacity_bytes), default=None),
    )
    held = _recorded(recordings, traces, marked, cores)
    lost = "lost device activity" in held.has
    if lost:
        steps_read = [replace(step, breakdown_s={}) for step in steps_read]
        held = replace(held, gaps={})
    if lost or device.kind == CPU:  # quantities of a device, of which there is none or not enough
        kpis = Kpis()
    if lost:
        kpis.explain(LOST)
    reasons = _reasons(recordings, traces, steps_read, ops, memory, kpis, no_steps)
    computed = dict(kpis.computed)
    if ops:
        computed["ops"] = "kernels are grouped by framework op, shapes, module and phase"
        computed["time_share"] = "time of all occurrences of an op / profiled time, over all devices"
    if steps_read:
        computed["step_time"] = GPU_FORMULAS["host_step_time" if not traces or device.kind == CPU else "step_time"]
        how = marked[0].how if marked else recordings[0].steps.how
        computed["steps"] = how if how == REPEATED else f"marked by {how}"
    return StepProfile(
        provenance="measured",
        source_kind=source_kind,
        device=device,
        files=tuple(files),
        **step_times([step.time_s for step in steps_read]),
        steps=tuple(steps_read[:_MOST_STEPS]),
        cores=tuple(core_values(cores)),
        kpis=kpis.values,
        not_measured=reasons,
        ops=tuple(ops),
        ops_dropped=dropped,
        memory=memory,
        notes=tuple(said),
        converter=next((recording.recorder for recording in recordings if recording.recorder), ""),
        computed=computed,
        timeline=strips(cores),
        recorded=held,
    )


def _latest(recordings: Sequence[TraceFile]) -> tuple[list[TraceFile], list[str]]:
    """(recordings of the latest run, files of earlier ones): files of the same devices, as a schedule that repeats
    writes them, are of one run only where their times overlap."""
    of = {(each.rank, each.host_name, *(trace.name for trace in each.devices)) for each in recordings}
    kept = latest_run([each.span_ns for each in recordings], CLOCKS_NS if len(of) == len(recordings) else 0)
    pairs = list(zip(recordings, kept, strict=True))
    return [each for each, is_kept in pairs if is_kept], [each.file for each, is_kept in pairs if not is_kept]


def host_marks(recordings: Sequence[TraceFile]) -> list[Step]:
    """The steps of traces without device activity, as their hosts mark them: mean over ranks."""
    marked = [
        dict(zip(one.steps.numbers, (one.steps.ends - one.steps.starts).tolist(), strict=True)) for one in recordings
    ]
    common = set(marked[0]).intersection(*marked[1:]) if marked else set()
    # The profiler closes its last mark as it stops.
    longest = max((times[number] for times in marked for number in common), default=0)
    common = {number for number in common if all(times[number] >= FRAGMENT * longest for times in marked)}
    return [Step(number, statistics.fmean(times[number] for times in marked) * 1e-12) for number in sorted(common)]


def _recorded(
    recordings: Sequence[TraceFile],
    traces: Sequence[DeviceTrace],
    marked: Sequence[Steps],
    cores: Sequence[CoreTimeline],
) -> Recorded:
    """Return what all traces together hold."""
    held = [recording.recorded for recording in recordings]
    window = sum(core.window_s for core in cores)
    gaps = _gaps(cores)
    before = sum(int((trace.ends - trace.starts)[left_over(trace)].sum()) for trace in traces)
    return Recorded(
        has=tuple(dict.fromkeys(key for one in held for key in one.has)),
        context_requests=max((one.context_requests for one in held if one.context_requests is not None), default=None),
        generation_requests=max(
            (one.generation_requests for one in held if one.generation_requests is not None), default=None
        ),
        gaps={cause: seconds / window for cause, seconds in gaps.items() if seconds > 0} if window else {},
        before_s=before * 1e-12,
        start_up_s=max((start_up_ps(*each) * 1e-12 for each in zip(traces, marked, strict=True)), default=0.0),
    )


def _gaps(cores: Sequence[CoreTimeline]) -> dict[str, float]:
    """Seconds of idle time by cause, over all devices."""
    return {cause: sum(core.gaps_s.get(cause, 0.0) for core in cores) for core in cores for cause in core.gaps_s}


def _kpis(
    cores: Sequence[CoreTimeline],
    steps: Sequence[Step],
    ops: Sequence[Op],
    device: Device,
    chip: Chip | None,
    launched: bool,
) -> Kpis:
    kpis = Kpis()
    from_timelines(kpis, cores)
    # Kernels before the first step were launched before it: nothing was lost there.
    kpis.values["goodput"] = None
    kpis.computed.pop("goodput", None)
    kpis.reasons["goodput"] = "A trace of a few steps does not show the time lost outside them."
    for key in kpis.computed:
        kpis.computed[key] = GPU_FORMULAS[key]
    total, window = sum(step.time_s for step in steps), sum(core.window_s for core in cores)

    def share(*parts: str) -> float | None:
        return sum(step.breakdown_s.get(part, 0.0) for step in steps for part in parts) / total if total else None

    if any("launch" in step.breakdown_s for step in steps):
        kpis.put("host", share("launch", "host_transfer"), GPU_FORMULAS["host"])
        kpis.put("input", share("input"), GPU_FORMULAS["input"])
    elif launched:
        gaps = _gaps(cores)
        late = sum(gaps.values()) - sum(gaps.get(cause, 0.0) for cause in ("input", "queued", "unknown"))
        kpis.put("host", late / window, GPU_FORMULAS["host_window"])
        kpis.put("input", gaps.get("input", 0.0) / window, GPU_FORMULAS["input"].replace("step", "profiled"))
    for key in ("input", "host"):
        kpis.reason(key, "The trace contains no calls that launch kernels, so waiting time cannot be attributed.")
    kpis.reason("output", "A GPU trace does not distinguish outfeed from other device-to-host copies.")
    kpis.reason("mxu_utilization", "The trace contains no tensor-core hardware counters.")
    flops = sum(op.flops for op in ops if op.flops)
    products = [op for op in ops if op.category in kernels.PRODUCTS]
    known = sum(op.self_time_s for op in products if op.flops) / (sum(op.self_time_s for op in products) or 1.0)
    if flops and known < _LEAST_KNOWN:
        kpis.reason(
            "flops_utilization",
            f"Shapes were recorded for {formatting.share(known, 2)} of matmul time (CUDA graphs and compiled regions "
            "record none), so matmul FLOPs are unknown.",
        )
    elif flops and window and chip is not None:
        peak = chip.peak("bf16") / chip.devices_per_chip
        kpis.put("flops_utilization", flops / window / peak, GPU_FORMULAS["flops_utilization"])
    kpis.reason(
        "flops_utilization",
        "The trace contains no shapes: record with record_shapes=True."
        if not flops
        else f"The peak FLOP/s of {device.kind} is unknown.",
    )
    kpis.reason("hbm_utilization", "The trace contains no memory traffic.")
    return kpis


def _reasons(
    recordings: Sequence[TraceFile],
    traces: Sequence[DeviceTrace],
    steps: Sequence[Step],
    ops: Sequence[Op],
    memory: Memory,
    kpis: Kpis,
    no_steps: str,
) -> dict[str, str]:
    no_device = next((recording.why_no_device for recording in recordings if recording.why_no_device), "")
    if no_device or not traces:
        kpis.reasons.clear()
        kpis.explain(no_device or "No device activity was recorded.")
    kpis.explain("Not in the trace.")
    reasons = dict(kpis.reasons)
    if not ops:
        reasons["ops"] = no_device or "No device activity was recorded."
    if not steps:
        marked = any(trace.steps.numbers for trace in traces)
        why = "No marked step was recorded completely on every device." if marked else no_steps
        reasons["step_time"] = reasons["steps"] = why if traces else no_device or no_steps
    if memory.peak_bytes is None:
        reasons["memory"] = (
            "The trace contains no device memory-allocator events: record with profile_memory=True."
            if any(recording.recorder.startswith("PyTorch") for recording in recordings)
            else "The trace contains no device memory-allocator events."
        )
    if not any(op.flops for op in ops):
        reasons["flops"] = "The trace contains no matmul shapes, so FLOPs are unknown."
    reasons["hbm_bytes"] = "The trace contains no memory traffic."
    reasons["peak_flops"] = reasons["peak_hbm"] = "The trace does not report the device's peak."
    return reasons


def _device(recordings: Sequence[TraceFile], traces: Sequence[DeviceTrace]) -> Device:
    """The device of most traces.  host_count: hosts that are named, else one."""
    kinds = [trace.device_name or "GPU" for trace in traces]
    kinds = kinds or [name for recording in recordings for name in recording.device_names[:1]] or ["unknown"]
    kind = statistics.mode(kinds)
    capacity = next((t.memory_capacity_bytes for t in traces if (t.device_name or "GPU") == kind), None)
    stated = next((trace.chip for trace in traces if trace.chip), None)
    hosts = {recording.host_name for recording in recordings if recording.host_name}
    return Device(
        kind=kind,
        chip=stated or chip_of_device(kind, memory_bytes=capacity),
        core_count=len(traces),
        host_count=max(1, len(hosts)),
        memory_bytes=capacity,
        world_size=max((recording.world_size or 0 for recording in recordings), default=0) or None,
    )


def _notes(recordings: Sequence[TraceFile], traces: Sequence[DeviceTrace]) -> list[Note]:
    notes = [Note("warning", text) for recording in recordings for text in recording.notes]
    world = max((recording.world_size or 0 for recording in recordings), default=0)
    talks = any(kind.exchange for trace in traces for kind in trace.kinds)
    if traces and world > len(traces) and talks:
        notes.append(
            Note(
                "warning",
                f"{len(traces)} of {world:,} ranks were uploaded: times inside collectives include waiting for the "
                "others, which cannot be separated from data transfer"
                + (", and stragglers elsewhere are not detected." if len(traces) > 1 else "."),
            )
        )
    unserved = max((trace.unserved for trace in traces if trace.unserved > UNSERVED * len(trace.kind)), default=0)
    if unserved:
        words = f"Of {unserved:,} launches at the end the device's activity was not recorded: its work went on."
        notes.append(Note("warning", words))
    kinds = {trace.device_name for trace in traces}
    if len(kinds) > 1:
        notes.append(Note("warning", f"The ranks ran on different devices: {', '.join(sorted(kinds)[:4])}."))
    return notes


def _left_out(trace: DeviceTrace, sentences: Sequence[str], several: bool) -> list[Note]:
    who = f"{trace.label}: " if several else ""
    notes = [Note("warning", who + sentence) for sentence in sentences[:_MOST_LEFT_OUT]]
    if len(sentences) > _MOST_LEFT_OUT:
        notes.append(Note("warning", f"{who}{len(sentences) - _MOST_LEFT_OUT} more steps are excluded."))
    return notes
