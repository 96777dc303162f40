"""The KPIs of the contract and those beside it: measured, or None with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean, median

import formatting
from diagnosis.analyzer.facts import OpFacts, total_share
from diagnosis.analyzer.ops import idle_share, peaks_per_core, profile_has_flops
from diagnosis.recording import KINDS, Recording
from experiments.step_profile import Core, StepProfile
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig
from perfmodel.roofline import mfu

MFU_CONVENTION = (
    "model FLOPs utilisation: forward and backward matmuls (6 FLOPs per active parameter and token, output head "
    "included) "
    "plus causal attention scores ({scores}), recompute excluded, over the dense {precision} peak of {chips} chips"
)

#: KPIs that follow from others; the profiler reports the rest.
COMPUTED = frozenset(
    ("mfu", "goodput", "communication_exposed", "communication_overlapped", "communication_ops", "stragglers",
     "step_time_spread", "memory_peak_share")
)  # fmt: skip

#: Share of the time in kernels without FLOPs from which a FLOPs utilisation over all of the time says too little.
UNCOUNTED = 0.05

_REASONS = {
    "step_time_s": "the profile has no step markers",
    "duty_cycle": "not reported by the profile; XProf computes it from device planes over marked steps",
    "idle": "the profile reports neither idle time nor duty cycle",
    "communication": "no collective time is reported, and too few ops are listed to sum it",
    "input": "the profile reports no input (infeed) time",
    "hbm_utilization": "ops report no bytes, or the chip's HBM bandwidth is unknown",
    "flops_utilization": "ops report no FLOPs, or the chip's peak FLOP/s is unknown",
    "communication_ops": "no collective was recorded, and the listed ops do not rule one out",
    "goodput": "idle time, or both input and host time, were not measured, so the lost time is unknown",
    "communication_exposed": "the profile has no trace intervals to separate exposed from overlapped communication",
    "communication_overlapped": "the profile has no trace intervals to separate exposed from overlapped communication",
    "host": "the profile reports no host time",
    "stragglers": "per-core times were not recorded for two or more cores",
    "memory_peak_share": "no memory profile was recorded",
    "step_time_spread": "fewer than two steps were profiled",
}


def own_work_s(core: Core) -> float | None:
    """Time per step until a core enters its collectives: its work, and what it waits for its own host or input.

    A core that waits inside collectives for a slower one does not work.
    """
    if core.busy_s is not None and core.exposed_s is not None:
        late = sum(core.breakdown_s.get(part, 0.0) for part in ("launch", "input"))
        return core.busy_s - core.exposed_s + late
    parts = core.breakdown_s
    if "compute" not in parts:
        return None
    # Where collectives are no part of their own, `compute` includes them and says nothing about who waits for whom.
    return parts["compute"] if "collective" in parts else None


def straggler_lag_s(cores: Sequence[Core]) -> tuple[float, Core, float] | None:
    """(lag of the slowest behind the median, that core, median) in seconds of own work per step; of two cores, behind
    the other."""
    times = [(own, core) for core in cores if (own := own_work_s(core)) is not None]
    if len(times) < 2:
        return None
    slowest, core = max(times, key=lambda item: item[0])
    middle = median(own for own, _ in times) if len(times) > 2 else min(own for own, _ in times)
    return slowest - middle, core, middle


def slow_host(cores: Sequence[Core], behind: Core) -> int | None:
    """Cores of the slowest core's host where all of them lag at least half as much as it; None where only some do."""
    times = {core.name: own for core in cores if core.host == behind.host and (own := own_work_s(core)) is not None}
    others = [own for core in cores if core.host != behind.host and (own := own_work_s(core)) is not None]
    if len(times) < 2 or not others:
        return None
    usual = median(others)
    lag = times[behind.name] - usual
    return len(times) if lag > 0 and min(times.values()) - usual >= 0.5 * lag else None


def _weighted(ops: Sequence[OpFacts], moved: bool) -> float | None:
    """Work over time: FLOPs (or HBM bytes) of all ops over their self time, per second and core."""
    time = sum(fact.op.self_time_s for fact in ops)
    amounts = [
        fact.op.hbm_bytes
        if moved and fact.op.hbm_bytes is not None
        else fact.op.bytes_accessed
        if moved
        else fact.op.flops
        for fact in ops
    ]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / time if known and time > 0 else None


def measure(
    profile: StepProfile,
    config: ExperimentConfig | None,
    chip: Chip | None,
    ops: Sequence[OpFacts],
    recording: Recording,
    precision: str,
) -> tuple[dict[str, float | None], dict[str, str], str]:
    """(KPIs, reason for each that is None, MFU convention).  precision: that the matmuls ran in."""
    stated = profile.kpis
    step = profile.step_time_s
    idle = idle_share(profile)
    complete = recording.meets(("most ops",))
    busy = 1.0 - (idle or 0.0)
    listed = total_share(op for op in ops if op.collective)
    kpis: dict[str, float | None] = {"step_time_s": step}
    duty = stated.get("duty_cycle")
    # What only the gaps between ops of a host say is nothing of a device.
    kpis["idle"] = idle if (stated.get("idle"), duty) != (None, None) else None
    kpis["duty_cycle"] = duty if duty is not None or kpis["idle"] is None else 1.0 - kpis["idle"]
    # Where timelines were read and yet state no communication, they cannot tell it, and ops without any are no zero.
    communication = stated.get("communication")
    if communication is None and complete and (listed or not profile.cores):
        communication = min(1.0, listed)
    reasons = dict(profile.not_measured)
    if not communication and recording.hides_communication:
        of_time = formatting.share(recording.unknown_share)
        communication = None
        reasons["communication"] = (
            f"kernels of unknown kind take {of_time} of the time, so that no collective by name says nothing"
        )
    kpis["communication"] = communication
    infeed = min(1.0, total_share(op for op in ops if op.family == "input"))
    kpis["input"] = (
        stated.get("input") if stated.get("input") is not None else (infeed if complete and infeed else None)
    )
    host = stated.get("host")
    kpis["host"] = host
    peak_flops, peak_bytes = peaks_per_core(profile, chip)
    flops = stated.get("flops_utilization")
    flops = stated.get("mxu_utilization") if flops is None else flops
    # A trace of kernels knows the work of some ops only: a sum over those is no rate of the whole.
    of_kernels = recording.meets(("kernels",))
    complete = complete and not of_kernels
    if complete and peak_flops and profile_has_flops(profile):
        flops = _stated_or_summed(flops, _weighted(ops, moved=False), peak_flops, busy)
    uncounted = 0.0 if of_kernels else total_share(op for op in ops if _lacks_flops(op))
    if flops is not None and uncounted >= UNCOUNTED and stated.get("mxu_utilization") is None:
        reasons["flops_utilization"] = (
            f"at least {formatting.share(flops)}: kernels that report no FLOPs take {formatting.share(uncounted)} of "
            "the time"
        )
        flops = None
    kpis["flops_utilization"] = flops
    hbm = stated.get("hbm_utilization")
    if complete and peak_bytes:
        hbm = _stated_or_summed(hbm, _weighted(ops, moved=True), peak_bytes, busy)
    kpis["hbm_utilization"] = hbm
    share, mfu_reason, convention = model_flops_utilization(step, config, precision)
    if not recording.may_train:
        share, mfu_reason, convention = None, "this is not a training step, so MFU does not apply", ""
    if recording.platform == "cpu":
        share, mfu_reason, convention = None, "recorded on a CPU, whose peak FLOP/s is unknown", ""
    kpis["mfu"] = share
    kpis["goodput"] = stated.get("goodput")
    kpis["communication_ops"] = min(1.0, listed) if ops and (listed or communication is not None) else None
    exposed, overlapped = _exposed(profile, ops)
    if communication is None and kpis["communication_ops"] is None:
        exposed = overlapped = None  # nothing tells whether there was any
        if (unknown := reasons.get("communication")) is not None:
            reasons |= {"communication_exposed": unknown, "communication_overlapped": unknown}
    kpis["communication_exposed"], kpis["communication_overlapped"] = exposed, overlapped
    lag = straggler_lag_s(profile.cores)
    kpis["stragglers"] = max(0.0, lag[0]) / step if lag and step else None
    memory = profile.memory
    capacity = memory.capacity_bytes or (chip.hbm_usable_bytes if chip else None)
    kpis["memory_peak_share"] = memory.peak_bytes / capacity if memory.peak_bytes and capacity else None
    spread = profile.step_time_stdev_s
    kpis["step_time_spread"] = spread / step if spread is not None and step and len(profile.steps) != 1 else None
    kpis = {key: value if value is None or isfinite(value) else None for key, value in kpis.items()}
    if not recording.is_program:
        why = f"{KINDS[recording.kind].lower()}: shares of its time are none of a step"
        kpis, reasons = dict.fromkeys(kpis) | {"memory_peak_share": kpis["memory_peak_share"]}, dict.fromkeys(kpis, why)
    for key, value in kpis.items():
        if value is None:
            reason = reasons.get(key) or reasons.get(key.removesuffix("_s"))
            reasons[key] = reason or (mfu_reason if key == "mfu" else _REASONS.get(key, "not reported by the profile"))
        else:
            reasons.pop(key, None)
    return kpis, reasons, convention


def _stated_or_summed(stated: float | None, rate: float | None, peak: float, busy: float) -> float | None:
    """The KPI as stated; summed over the ops where it is not, or where it says 0 while the ops did work."""
    summed = min(1.0, rate / peak * busy) if rate is not None else None
    if stated is None or (stated == 0.0 and summed is not None and summed > 0.001):
        return summed
    return stated


def _lacks_flops(fact: OpFacts) -> bool:
    """Whether an op computes, by its kind, and reports no FLOPs: kernels of libraries that no cost model counts."""
    return fact.family in ("matmul", "attention kernel", "custom call") and not fact.op.flops


def _exposed(profile: StepProfile, ops: Sequence[OpFacts]) -> tuple[float | None, float | None]:
    """Exposed communication, and collectives in flight beside other ops, as shares of the step: from merged intervals,
    mean over cores.  Without a step, of device time, from each collective's own intervals.
    """
    step = profile.step_time_s
    if not step:
        talking = [op for op in ops if op.collective]
        hidden = [op.hidden_share for op in talking]
        if not talking or None in hidden:
            return None, None
        exposed = sum(op.exposed_share for op in talking)
        beside = sum(op.share * (op.op.in_flight_s or 0.0) / op.op.self_time_s for op in talking if op.op.self_time_s)
        return min(1.0, exposed), max(0.0, min(1.0, beside) - exposed)
    timed = [core for core in profile.cores if core.collective_s is not None and core.exposed_s is not None]
    if not step or not timed:
        return None, None
    total = fmean(core.collective_s or 0.0 for core in timed)
    exposed = fmean(core.exposed_s or 0.0 for core in timed)
    return exposed / step, max(0.0, total - exposed) / step


def model_flops_utilization(
    step: float | None, config: ExperimentConfig | None, precision: str
) -> tuple[float | None, str, str]:
    """(MFU over the peak of `precision`, reason if None, convention)."""
    if config is None:
        return None, "no configuration was given", ""
    training = config.training
    lacking = [
        name
        for name, value in (
            ("the step time", step),
            ("a model shape", config.model),
            ("the global batch", training.global_batch),
            ("the sequence length", training.seq_len),
        )
        if not value
    ]
    share = mfu(config, step, precision)
    if share is None:
        return None, f"needs {formatting.listed(lacking)}", ""
    assert config.model and training.seq_len
    scores = "half of the full square"
    if 0 < config.model.sliding_window < training.seq_len:
        scores = (
            f"half of the full square in global layers, the window of {config.model.sliding_window:,} tokens in local "
            "ones"
        )
    convention = MFU_CONVENTION.format(scores=scores, precision=precision, chips=config.hardware.chips)
    if share > 1.0:
        times = formatting.plain(share, "speedup")
        text = f"the configuration implies {times} the chips' peak FLOP/s: check model, batch, precision and chip count"
        return None, text, ""
    return share, "", convention
