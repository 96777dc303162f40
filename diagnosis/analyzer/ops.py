"""Every op read once: family, module, phase, limit, resource, time per step and core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diagnosis.analyzer import links, names
from diagnosis.analyzer.collectives import Collective, Collectives
from diagnosis.analyzer.facts import HOST_TRANSFER, ON_CHIP, OpFacts
from diagnosis.report import OpDiagnosis
from experiments.hlo import text as hlo
from experiments.step_profile import LATENCY, OVER_ROOF, Op, StepProfile
from perfmodel.chips import Chip

#: What limits a family of ops on any accelerator if the profile has no roofline.
_USUAL_LIMIT = {
    "matmul": "compute",
    "attention kernel": "compute",
    "elementwise": "hbm",
    "reduction": "hbm",
    "data movement": "hbm",
    "scatter": "hbm",
}
#: What a copy to or from host memory waits for, whichever memory the profiler's cost model counts its bytes at.
HOST_LINK = "Host link"
#: Categories of such copies where their bytes were not recorded.
COPIES_OF_HOST = ("copy host to device", "copy device to host")
#: A label on an op that reaches less of its roof than this says nothing: it waits, or its FLOPs were not recorded.
LEAST_EFFICIENCY = 0.01
#: An efficiency up to this is rounding; one beyond it measures the profile's idea of the roof, not the op.
ROUNDED = 1.005
#: Bytes over time up to this part above what the links carry are within the spread of a trace's times.
LINK_TOLERANCE = 1.1
#: A mean up to this part beyond the fastest or slowest core is rounding.
SPREAD_TOLERANCE = 0.02


def idle_share(profile: StepProfile) -> float | None:
    """Share of the step in which the device had nothing to do, from the KPI, the duty cycle or the gaps themselves."""
    idle = profile.kpis.get("idle")
    if idle is not None:
        return min(1.0, max(0.0, idle))
    duty = profile.kpis.get("duty_cycle")
    if duty is None:
        return min(1.0, sum(profile.recorded.gaps.values())) if profile.recorded.gaps else None
    return min(1.0, max(0.0, 1.0 - duty))


def coverage(profile: StepProfile) -> float:
    """Share of the busy time that the listed ops make up, 0–1."""
    busy = 1.0 - (idle_share(profile) or 0.0)
    listed = sum(max(0.0, op.time_share) for op in profile.ops)
    return min(1.0, listed / busy) if busy > 0 else 0.0


def overlapping(profile: StepProfile) -> bool:
    """Whether ops ran beside each other on several streams, so that together they take longer than the device time."""
    return sum(max(0.0, op.time_share) for op in profile.ops) > 1.02


def step_share_scale(profile: StepProfile) -> float:
    """Share of the step over `Op.time_share`: 1, as XProf counts idle time in, unless busy and idle exceed the step.

    They do where shares are of op time only, or where ops ran beside each other on several streams: there collectives
    whose intervals are known keep their own time, and the other ops share what these leave exposed.
    """
    busy = 1.0 - (idle_share(profile) or 0.0)
    apart = [op for op in profile.ops if _keeps_its_time(op, profile)]
    busy -= sum(op.time_share * min(1.0, (op.exposed_s or 0.0) / op.self_time_s) for op in apart)
    listed = sum(max(0.0, op.time_share) for op in profile.ops) - sum(op.time_share for op in apart)
    if busy <= 0:  # ops ran although the KPI says that nothing did
        return 1.0 / listed if listed > 1.0 else 1.0
    return busy / listed if listed > busy + 0.02 else 1.0


def _keeps_its_time(op: Op, profile: StepProfile) -> bool:
    """Whether an op's exposed time is measured, by intervals of concurrent streams."""
    return op.exposed_s is not None and op.self_time_s > 0 and op.time_share > 0 and overlapping(profile)


def limit_of(
    op: Op, family: str, has_flops: bool, peaks: tuple[float | None, float | None]
) -> tuple[str, str, float | None]:
    """(limit, its source, efficiency 0–1 of that roof).

    The label stands where the profile has FLOPs at all (without them XProf calls everything HBM-bound), replaced by
    `_on_roofline` where FLOPs, bytes and peaks contradict it; otherwise the roofline is worked out from those; else
    the family's usual limit.
    """
    efficiency = _measured(op.credible_efficiency)
    label = (op.bound_by or "").strip().lower()
    if op.bound_by == LATENCY:
        return "latency", "launch", None
    if has_flops and label and label not in ("unknown", "none", "-"):
        if "compute" in label or "mxu" in label or "flop" in label:
            return "compute", "roofline", efficiency
        if "hbm" in label or label in ("memory", "dram", "memory bandwidth"):
            weak = efficiency is not None and efficiency < LEAST_EFFICIENCY
            if weak and family in ("attention kernel", "matmul"):
                return "compute", "category", None  # its FLOPs were not recorded
            return "hbm", "roofline", efficiency
        if any(word in label for word in ON_CHIP):
            return "on-chip", "roofline", efficiency
    peak, bandwidth = peaks
    flops, moved = op.flops or 0.0, op.hbm_bytes or op.bytes_accessed or 0.0
    if has_flops and flops > 0 and moved > 0 and peak and bandwidth and op.self_time_s > 0:
        compute_s, memory_s = flops / peak, moved / bandwidth
        reached = _measured(max(compute_s, memory_s) / op.self_time_s)
        return ("compute" if compute_s >= memory_s else "hbm"), "roofline", efficiency or reached
    if family in _USUAL_LIMIT:
        return _USUAL_LIMIT[family], "category", efficiency if efficiency else None
    return "", "", efficiency if efficiency else None


def _measured(efficiency: float | None) -> float | None:
    """An efficiency 0–1; None where it exceeds its roof, hence is none: caches served part of the bytes, or the peak is
    another's.
    """
    if efficiency is None or efficiency > ROUNDED:
        return None
    return min(1.0, max(0.0, efficiency))


def peaks_per_core(profile: StepProfile, chip: Chip | None) -> tuple[float | None, float | None]:
    """(FLOP/s, HBM bytes/s) of one core: as the profile states them, else the chip's shared by its cores."""
    flops, moved = profile.device.peak_flops_per_s, profile.device.peak_hbm_bytes_per_s
    if chip is not None:
        flops = flops or chip.peak("bf16") / chip.devices_per_chip
        moved = moved or chip.hbm_bytes_per_s / chip.devices_per_chip
    return flops, moved


def read_ops(profile: StepProfile, collectives: Collectives, chip: Chip | None, platform: str) -> tuple[OpFacts, ...]:
    """All ops by descending share.  chip: its peaks are used if the profile states none."""
    scale = step_share_scale(profile)
    has_flops = profile_has_flops(profile)
    peaks = peaks_per_core(profile, chip)
    on_gpu = platform == "gpu"
    facts = []
    for recorded in profile.ops:
        op = _on_roofline(_consistent(recorded), peaks, on_gpu)
        collective = _within_links(op, collectives.read(op), chip)
        category = names.normal_category(op.category)
        opcode = ""
        if not collective and category in ("unknown", "") and op.hlo:
            instruction = hlo.parse(op.hlo)
            opcode = instruction.opcode if instruction else ""
        path = op.op_name or (hlo.op_name(op.hlo) if "op_name=" in op.hlo else "")
        if collective:
            kind = "collective"
        elif op.host_bytes or op.category in COPIES_OF_HOST:
            kind = HOST_TRANSFER
        else:
            kind = names.family(category, op.name.lower(), opcode, path.rpartition("/")[2])
        limit, source, efficiency = limit_of(op, kind, has_flops, peaks)
        if kind == HOST_TRANSFER:
            op = replace(op, bound_by=HOST_LINK, roofline_efficiency=None)
            source, efficiency = "host bytes", None
        elif kind in ("input", "output", "host", "idle"):
            source = "category"
        share = op.time_share * (1.0 if _keeps_its_time(op, profile) else scale)
        facts.append(
            OpFacts(
                op=op,
                category=category,
                family=kind,
                module=names.module(path, op.name),
                phase=names.phase(path),
                path=path,
                share=share,
                time_s=share * profile.step_time_s if profile.step_time_s else None,
                limit=limit,
                limit_source=source,
                efficiency=efficiency,
                collective=collective,
            )
        )
    facts.sort(key=lambda fact: -fact.share)
    return tuple(facts)


def _consistent(op: Op) -> Op:
    """The op without what contradicts itself: exposed for longer than it was in flight, or a spread over cores that
    its mean lies outside of.  XProf's tables and its timelines name asynchronous copies differently.
    """
    if op.exposed_s is not None and op.in_flight_s is not None and op.exposed_s > op.in_flight_s * (1.0 + 1e-6):
        op = replace(op, exposed_s=None, in_flight_s=None)
    if op.core_max_s is None or op.core_min_s is None or not op.core_count or op.self_time_s <= 0:
        return op
    mean = op.self_time_s / op.core_count
    if op.core_min_s <= mean * (1.0 + SPREAD_TOLERANCE) and mean <= op.core_max_s * (1.0 + SPREAD_TOLERANCE):
        return op
    return replace(op, core_max_s=None, core_min_s=None, slowest_core="")


def _on_roofline(op: Op, peaks: tuple[float | None, float | None], on_gpu: bool) -> Op:
    """The op with the bound and the efficiency that its FLOPs, bytes and the device's peaks give, where the label says
    the other side of the ridge.  Without memory spaces (on GPUs) XProf attributes only some of the bytes to HBM: all
    that an op accesses counts there.
    """
    peak, bandwidth = peaks
    moved = op.bytes_accessed if on_gpu else op.hbm_bytes
    label = (op.bound_by or "").strip().lower()
    if not (op.flops and moved and peak and bandwidth and op.self_time_s > 0) or label not in ("compute", "hbm"):
        return op
    compute_s, memory_s = op.flops / peak, moved / bandwidth
    bound = "Compute" if compute_s >= memory_s else "HBM"
    reached = max(compute_s, memory_s) / op.self_time_s
    if bound.lower() == label or reached > OVER_ROOF:
        return op
    return replace(op, bound_by=bound, roofline_efficiency=reached)


def _within_links(op: Op, collective: Collective | None, chip: Chip | None) -> Collective | None:
    """The collective without a bandwidth that no link carries: its bytes, its groups or its time are not what they
    seem, so neither bandwidth nor exposure follows from them.
    """
    if collective is None or collective.achieved_bytes_per_s is None or (collective.match and collective.match.dcn):
        return collective
    most = collective.possible_bytes_per_s or (links.most_bytes_per_s(chip) if chip else None)
    if most is None or collective.achieved_bytes_per_s <= LINK_TOLERANCE * most:
        return collective
    return replace(collective, achieved_bytes_per_s=None, above_links=collective.achieved_bytes_per_s)


def profile_has_flops(profile: StepProfile) -> bool:
    """Whether any op carries FLOPs, or an export that shows efficiencies only says some op is compute-bound."""
    return any(op.flops or op.flops_per_s or op.compute_efficiency for op in profile.ops) or any(
        (op.bound_by or "").lower() == "compute" for op in profile.ops
    )


def _on_core(fact: OpFacts, total: float | None, cores: int) -> float | None:
    """One core's total over the profile as its time per step; cores: of the profile, over which ops are averaged."""
    per_step = fact.per_step(total)
    return None if per_step is None or not cores else per_step * cores


#: Facts that a diagnosis states of an op as the profile does, and as the Analyzer reads it.
_OF_OP = ("name", "key", "category", "occurrences", "bound_by", "roofline_efficiency", "flops_per_s",
          "hbm_bytes_per_s", "operational_intensity", "source", "slowest_core", "op_name", "hlo")  # fmt: skip
_OF_FACTS = ("time_s", "resource", "module", "family", "phase")
_OF_COLLECTIVE = ("participants", "achieved_bytes_per_s", "possible_bytes_per_s", "tensor")
_PER_STEP = ("flops", "hbm_bytes", "in_flight_s", "exposed_s")


def to_diagnosis(fact: OpFacts, cores: int) -> OpDiagnosis:
    op, collective = fact.op, fact.collective
    shared: dict[str, Any] = {name: getattr(op, name) for name in _OF_OP}
    shared |= {name: getattr(fact, name) for name in _OF_FACTS}
    shared |= {name: fact.per_step(getattr(op, name)) for name in _PER_STEP}
    if collective:
        shared |= {name: getattr(collective, name) for name in _OF_COLLECTIVE}
        shared |= {"mesh_axis": collective.axis, "collective": collective.kind}
        shared |= {"collective_bytes": collective.payload_bytes}
    return OpDiagnosis(
        time_share=fact.share,
        axis_source=collective.match.source if collective and collective.match else "",
        resource_source="collective" if collective else fact.limit_source,
        core_max_s=_on_core(fact, op.core_max_s, cores),
        core_min_s=_on_core(fact, op.core_min_s, cores),
        **shared,
    )
