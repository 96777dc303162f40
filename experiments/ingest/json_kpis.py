"""KPIs of JSON exports: as XProf states them, less zeros that stand for nothing, else from the tables beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import formatting
from experiments.ingest.json_rows import Piece, at_least_zero, time_s, wrong
from experiments.ingest.kpis import KPI_KEYS, Kpis, is_contradicted_zero
from experiments.ingest.op_classes import op_class
from experiments.ingest.values import GIB, number
from experiments.step_profile import Device, Op, Step

#: KPI ← keys beside `<kpi>_percent` and its own name, all shares; `percent` in the key or `%` in the text means 0–100,
#: else a value above 1.5 does.
_MORE_KEYS = {
    "duty_cycle": ("device_duty_cycle_percent", "device_duty_cycle"),
    "idle": ("device_idle_time_percent",),
    "communication": ("communication_overhead_percent", "communication_overhead"),
    "input": ("infeed_percent_average",),
}
_KPI_KEYS = {kpi: (*_MORE_KEYS.get(kpi, ()), f"{kpi}_percent", kpi) for kpi in KPI_KEYS}
#: Shares of a peak: a cost model or a counter may state more, which is no reason to refuse.
_UTILIZATIONS = ("mxu_utilization", "hbm_utilization", "flops_utilization")
#: Rounding and clocks.
_MOST = 1.02
#: Tools that print 0 for what was never recorded.
_PRINTED = ("overview_page", "input_pipeline_analyzer")
#: Hardware counters: 0 where the profile has none.
_COUNTERS = ("mxu_utilization", "hbm_utilization")
#: Of ops that cover less of the time, nothing is said of the rest.
_COVERED = 0.9
ABSENT = "Not in the JSON export."


def read_kpis(
    parts: Sequence[Piece], step_time_s: float | None, steps: Sequence[Step], ops: Sequence[Op], device: Device
) -> Kpis:
    """Every KPI, its reason where there is none, and how it was computed where XProf does not state it."""
    known = _shares_from_tables(parts, steps, ops, device)
    kpis = Kpis()
    for key, stated in _stated(parts).items():
        if stated > _MOST:
            kpis.reason(key, f"XProf reports {formatting.share(stated, 2)} of peak, which exceeds the chip's limit.")
            continue
        if stated == 0.0 and _is_printed(parts, key) and not (ops and step_time_s):
            kpis.reason(
                key, "XProf reports 0 % also where nothing was recorded, and the export contains no ops to check it."
            )
            continue
        if is_contradicted_zero(stated, known.get(key)):
            against = formatting.share(known[key])
            kpis.reason(key, f"XProf reports 0 % where nothing was recorded: its tables show {against}.")
        elif not (key in _COUNTERS and stated == 0.0):
            kpis.put(key, stated)
    if kpis.values["duty_cycle"] is None and kpis.values["idle"] == 0.0 and "duty_cycle" in kpis.reasons:
        kpis.values["idle"] = None  # both come from one computation, which had nothing to go by
    _from_tables(kpis, known, ops)
    if step_time_s:
        for kpi, name in (("duty_cycle", "tc_busy_time"), ("communication", "mean_all_reduce")):
            seconds = first_time(parts, name)
            if kpis.values[kpi] is None and seconds is not None and seconds <= step_time_s * 1.02:
                kpis.put(kpi, min(seconds / step_time_s, 1.0), f"{name} / step_time, both as exported")
    if kpis.values["flops_utilization"] == 0.0:
        kpis.values["flops_utilization"] = None  # no FLOPs were recorded
    for key in kpis.computed:
        if key in kpis.reasons:
            kpis.computed[key] += "; " + kpis.reasons[key].rstrip(".")
    kpis.explain(ABSENT)
    kpis.reasons = {key: why for key, why in kpis.reasons.items() if kpis.values[key] is None}
    return kpis


def _is_printed(parts: Sequence[Piece], key: str) -> bool:
    said = lookup(parts, _KPI_KEYS[key])
    return said is not None and said[0].tool in _PRINTED


def _stated(parts: Sequence[Piece]) -> dict[str, float]:
    by_kpi: dict[str, float] = {}
    for kpi, keys in _KPI_KEYS.items():
        said = lookup(parts, keys)
        if said is None:
            continue
        part, key, raw = said
        value = at_least_zero(raw, part.file, key)
        if value is None:
            continue
        share = value[0] / 100 if value[1] == "%" or "percent" in key or value[0] > 1.5 else value[0]
        if share > _MOST and kpi not in _UTILIZATIONS:
            raise wrong(part.file, key, raw, "a share of at most 100 %")
        by_kpi[kpi] = share if share > _MOST else min(share, 1.0)
    return by_kpi


def _shares_from_tables(
    parts: Sequence[Piece], steps: Sequence[Step], ops: Sequence[Op], device: Device
) -> dict[str, float]:
    """The same quantities from op and step tables; shares of ops are lower bounds."""
    known: dict[str, float] = {}
    idle = _value(parts, "op_profile_idle")
    total = sum(step.time_s for step in steps)
    if idle is None and total > 0 and all("idle" in step.breakdown_s for step in steps):
        idle = sum(step.breakdown_s["idle"] for step in steps) / total
    busy = sum(op.time_share for op in ops)
    if idle is not None:
        known["idle"] = idle
        known["duty_cycle"] = 1.0 - idle
    elif ops:
        known["duty_cycle"] = min(busy, 1.0)
    for key, group in (("communication", "collective"), ("input", "input"), ("output", "output")):
        if total > 0 and not ops and all(group in step.breakdown_s for step in steps):
            known[key] = sum(step.breakdown_s[group] for step in steps) / total
        if ops:
            known[key] = sum(op.time_share for op in ops if op_class(op.name, op.category) == group)
    flops = _value(parts, "program_compute_efficiency", "op_profile_flops")
    if flops is not None:
        known["flops_utilization"] = known["mxu_utilization"] = flops
    bandwidth = _value(parts, "program_hbm_bw")
    if bandwidth is not None and device.peak_hbm_bytes_per_s:
        known["hbm_utilization"] = bandwidth * GIB / device.peak_hbm_bytes_per_s
    elif (utilization := _value(parts, "op_profile_hbm")) is not None:
        known["hbm_utilization"] = utilization
    if ops:
        known["goodput"] = min(busy, 1.0)
    return known


def _from_tables(kpis: Kpis, known: Mapping[str, float], ops: Sequence[Op]) -> None:
    """What XProf's pages do not state, from its tables."""
    if kpis.values["idle"] is None and "idle" in known:
        kpis.put("idle", known["idle"], "idle time in XProf's op_profile or step table / profiled time")
    if kpis.values["duty_cycle"] is None and kpis.values["idle"] is not None and "duty_cycle" in kpis.reasons:
        kpis.put("duty_cycle", 1.0 - kpis.values["idle"], "1 − idle time")
    if not ops:
        formula = "time of this part in XProf's step table / step time"
        for key in ("communication", "input", "output"):
            kpis.put(key, known.get(key) if kpis.values[key] is None else kpis.values[key], formula)
    elif kpis.values["communication"] is None and sum(op.time_share for op in ops) >= _COVERED:
        formula = "self time of collective ops / profiled time; overlapped time is excluded"
        kpis.put("communication", known["communication"], formula)
    if kpis.values["flops_utilization"] is None and known.get("flops_utilization"):
        kpis.put_utilization("flops_utilization", known["flops_utilization"], ops, "compute")
    if kpis.values["hbm_utilization"] is None and known.get("hbm_utilization"):
        kpis.put_utilization("hbm_utilization", known["hbm_utilization"], ops, "hbm")


def lookup(parts: Sequence[Piece], keys: Sequence[str]) -> tuple[Piece, str, Any] | None:
    """The first of the keys that any part states."""
    for key in keys:
        for part in parts:
            if part.kpis.get(key) is not None:
                return part, key, part.kpis[key]
    return None


def _value(parts: Sequence[Piece], *keys: str) -> float | None:
    entry = lookup(parts, keys)
    value = number(entry[2]) if entry else None
    return value if value is not None and value >= 0 else None


def first_time(parts: Sequence[Piece], *names: str) -> float | None:
    """The first of these times that any part states, in seconds; 0 is none."""
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
