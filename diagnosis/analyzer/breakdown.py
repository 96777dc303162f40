"""Where the step goes: exclusive shares by resource that sum to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from diagnosis.analyzer.facts import HOST_TRANSFER, OpFacts, total_share
from diagnosis.analyzer.ops import idle_share
from experiments.step_profile import StepProfile

ORDER = ("compute", "hbm", "ici", "dcn", "host_transfer", "host", "input", "idle", "other")
#: Communication that a KPI has beyond the listed ops, from which on it is no rounding.
NOTABLE_GAP = 0.005
#: Families whose time is a stall of the step, not work of the program on the device.
NOT_WORK = ("input", "output", "host", "idle", HOST_TRANSFER)


def group_of(bar: str) -> str:
    """What a bar says limits the step: compute, memory, communication, input, host, idle or other."""
    name = bar.partition(":")[0]
    return {"hbm": "memory", "ici": "communication", "dcn": "communication", "host_transfer": "host"}.get(name, name)


def bar_label(bar: str) -> str:
    """``ici:data+seq`` as ``collectives on data+seq``, ``hbm`` as ``HBM``: links are ICI on TPUs only."""
    name, _, axes = bar.partition(":")
    if name == "ici":
        return f"collectives on {axes}" if axes else "collectives"
    return name.upper() if name in ("hbm", "dcn") else name.replace("_", " ")


def axis_label(fact: OpFacts) -> str:
    """Key of the bar a collective is drawn in: ``ici:model``, ``ici:data+seq``, ``dcn``, ``ici`` where unknown."""
    if fact.over_dcn:
        return "dcn"
    return f"ici:{'+'.join(fact.axes)}" if fact.axes else "ici"


def stalls(profile: StepProfile, ops: Sequence[OpFacts], kpis: Mapping[str, float | None]) -> dict[str, float]:
    """Shares of the step in which the device did no work of the program: input, host, host_transfer, idle, exclusive.

    XProf's own split of the step comes first, KPIs second, infeed and outfeed ops third.  once: what happens once in
    the recording, which no step waits for again, and so no term of the breakdown.
    """
    parts = _mean_parts(profile) or _gaps(profile)
    on_device = total_share(op for op in ops if op.family == "input")
    input_share = max(parts.get("input", 0.0), kpis.get("input") or 0.0, on_device)
    transfers = total_share(op for op in ops if op.family in ("output", "host"))
    offload = max(parts.get("host_transfer", 0.0), sum(op.exposed_share for op in ops if op.family == HOST_TRANSFER))
    split = sum(parts.get(key, 0.0) for key in ("host", "launch", "compile", "output"))
    stated = (profile.kpis.get("host") or 0.0) + (profile.kpis.get("output") or 0.0)
    # A profiler may count the wait for an offloaded tensor as host time: it is drawn once.
    host_share = max(split - (0.0 if "host_transfer" in parts else offload), stated - offload, transfers)
    idle = idle_share(profile)
    # The idle KPI is everything the device did not execute; what input and host explain of it is theirs, except ops
    # that ran on the device as an op (infeed, outfeed) and hence was busy.
    waited = max(0.0, input_share - on_device) + max(0.0, host_share - transfers)
    gaps = parts.get("idle", 0.0)
    if idle is not None:
        # Steps split by another rule than the KPI may call idle what the ops show as busy.
        gaps = min(gaps, max(idle, 1.0 - sum(op.op.time_share for op in ops) - waited))
    rest = max(gaps, (idle or 0.0) - waited)
    once = min(host_share, profile.recorded.gaps.get("rare", 0.0))
    waits = {"input": input_share, "host": host_share - once, "host_transfer": offload, "idle": max(0.0, rest)}
    waits |= {"once": once}
    total = sum(waits.values())
    return {key: value / max(1.0, total) for key, value in waits.items()}


def _mean_parts(profile: StepProfile) -> dict[str, float]:
    steps = [step for step in profile.steps if step.time_s > 0 and step.breakdown_s]
    if not steps:
        return {}
    names = {name for step in steps for name in step.breakdown_s}
    return {name: fmean(step.breakdown_s.get(name, 0.0) / step.time_s for step in steps) for name in names}


def _gaps(profile: StepProfile) -> dict[str, float]:
    """Return the gaps between ops of a host, for which no KPI is stated, as parts of a step."""
    gaps = profile.recorded.gaps if profile.kpis.get("idle") is None else {}
    waits = {cause: gaps.get(cause, 0.0) for cause in ("input", "queued", "unknown")}
    return {"input": waits["input"], "launch": sum(gaps.values()) - sum(waits.values())} if gaps else {}


def shares(
    profile: StepProfile, ops: Sequence[OpFacts], kpis: Mapping[str, float | None], complete: bool
) -> dict[str, float]:
    """Exclusive shares of the step by bar, in drawing order, summing to one.  Empty where nothing was measured."""
    if not ops and idle_share(profile) is None and not _mean_parts(profile):
        return {}
    bars: dict[str, float] = {}
    lost = stalls(profile, ops, kpis)
    working = [op for op in ops if op.family not in NOT_WORK]
    if not ops:  # steps that are split without their ops, as in a pod viewer
        parts = _mean_parts(profile)
        split = {"compute": parts.get("compute", 0.0), "ici": parts.get("collective", 0.0)}
        bars = {bar: part for bar, part in split.items() if part}
    for op in working:
        bar = axis_label(op) if op.collective else (op.resource if op.resource in ("compute", "hbm") else "other")
        bars[bar] = bars.get(bar, 0.0) + (op.exposed_share if op.collective else op.share)
    busy = max(0.0, 1.0 - sum(lost.values()))
    lost.pop("once")
    _hide_overlap(bars, kpis)
    stated = profile.kpis.get("communication")
    if stated is not None and (not complete or kpis.get("communication_exposed") is None):
        # What the KPI states beyond the listed ops is communication all the same, on an unknown axis: all of it in a
        # sample of the ops, as much as the ops leave open in a list with small gaps.
        talking = sum(value for bar, value in bars.items() if bar.startswith("ici") or bar == "dcn")
        beyond = max(0.0, stated - talking)
        if complete:
            beyond = min(beyond, max(0.0, busy - sum(bars.values())))
        if not complete or beyond >= NOTABLE_GAP:
            bars["ici"] = bars.get("ici", 0.0) + beyond
    listed = sum(bars.values())
    # Ops that run beside each other (streams of a GPU) add up to more than the step; a complete list fills it, and what
    # a list with gaps leaves open is known to nobody.
    if listed > busy or (complete and listed > 0 and total_share(working) >= 0.98 * busy):
        # Where intervals tell what is exposed of communication, it is measured, and the rest fills up.
        measured = kpis.get("communication_exposed") is not None
        kept = {bar: value for bar, value in bars.items() if measured and (bar.startswith("ici") or bar == "dcn")}
        taken = sum(kept.values())
        if taken < min(busy, listed):
            bars = {bar: value * (busy - taken) / (listed - taken) for bar, value in bars.items()} | kept
        else:
            bars = {bar: value * busy / listed for bar, value in bars.items()}
    bars.update({key: value for key, value in lost.items() if value > 0})
    bars["other"] = bars.get("other", 0.0) + max(0.0, 1.0 - sum(bars.values()))
    return {bar: bars[bar] for bar in sorted(bars, key=lambda bar: (ORDER.index(bar.split(":")[0]), -bars[bar]))}


def _hide_overlap(bars: dict[str, float], kpis: Mapping[str, float | None]) -> None:
    """Count only the exposed part of communication, where intervals tell it; ops that add up to a little less are the
    same communication, timed over the whole recording.
    """
    exposed, hidden = kpis.get("communication_exposed"), kpis.get("communication_overlapped")
    talking = [bar for bar in bars if bar.startswith("ici") or bar == "dcn"]
    total = sum(bars[bar] for bar in talking)
    if exposed is None or hidden is None or not total or total < exposed - NOTABLE_GAP:
        return
    for bar in talking:
        bars[bar] *= exposed / total


def goodput(profile: StepProfile, kpis: Mapping[str, float | None], shares: Mapping[str, float]) -> float | None:
    """Share of the step in which the device worked on the program: all but input, host and idle time.

    None where idle time is unknown, or nothing tells input and host time from the rest: 1 − idle would be the duty
    cycle under another name.  XProf does not emit it; steps lost outside the window cannot be seen in a profile.
    """
    if kpis.get("goodput") is not None:
        return kpis["goodput"]
    marked = bool(_mean_parts(profile)) and "steps" not in profile.not_measured
    split = kpis.get("input") is not None or kpis.get("host") is not None or marked
    if kpis.get("idle") is None or not split:
        return None
    lost = sum(shares.get(bar, 0.0) for bar in ("input", "host", "host_transfer", "idle"))
    return max(0.0, 1.0 - lost - profile.recorded.gaps.get("rare", 0.0))


def costliest_axis(ops: Sequence[OpFacts]) -> tuple[str, float] | None:
    """(bar, exposed share of the step) of the axis that costs most."""
    totals: dict[str, float] = {}
    for op in (op for op in ops if op.collective):
        totals[axis_label(op)] = totals.get(axis_label(op), 0.0) + op.exposed_share
    totals.pop("ici", None)
    return max(totals.items(), key=lambda item: item[1]) if totals else None
