"""How each KPI is counted, for the panel behind it: what a reader would have to do to get the same number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnosis.report import Diagnosis

#: As the Analyzer counts it (`diagnosis.analyzer.kpis`), where the profile does not state how it did.
FORMULAS = {
    "step_time_s": "mean over the profiled steps and cores",
    "duty_cycle": "time in which any op ran ÷ profiled time, mean over cores; 1 − idle where only that is stated",
    "idle": "1 − duty cycle",
    "communication": "merged time of collective ops ÷ profiled time, mean over cores",
    "input": "merged time of infeed ops not hidden by others ÷ step time, mean over cores",
    "host": "time in which the device waited for the host ÷ step time",
    "flops_utilization": "FLOPs of all ops by XLA's cost model ÷ profiled time ÷ peak rate",
    "hbm_utilization": "HBM bytes of all ops ÷ profiled time ÷ peak bandwidth",
    "goodput": "1 − input − host − idle, over the profiled window only",
    "mfu": "model FLOPs per token × tokens per step ÷ (step time × peak rate × chips)",
    "memory_peak_share": "peak of the device's allocator on the worst core ÷ what a program can use of its memory",
    "communication_exposed": "merged time in which a collective ran and no other op did ÷ step time, mean over cores",
    "communication_overlapped": "(merged time of collectives in flight − exposed part) ÷ step time, mean over cores",
    "communication_ops": "sum of the shares of all collective ops; overlapping ones count twice",
    "stragglers": "(own work of the slowest core − median of the cores) ÷ step time; waiting for others is no work",
    "step_time_spread": "standard deviation of the steps ÷ their mean",
}
#: KPIs whose rows are the collectives, the largest ops, or the steps.
OF_COLLECTIVES = frozenset(
    ("communication", "communication_exposed", "communication_overlapped", "communication_ops")
)  # fmt: skip
OF_ALL_OPS = frozenset(("flops_utilization", "hbm_utilization", "mfu"))
OF_STEPS = frozenset(("step_time_s", "step_time_spread"))
OF_CORES = frozenset(("stragglers", "duty_cycle", "idle"))


def formula(key: str, diagnosis: Diagnosis, summary: Mapping[str, Any]) -> str:
    """How the KPI was counted; as the profile's reader noted it, else as the Analyzer counts it."""
    noted = (summary.get("computed") or {}).get(key) or (summary.get("computed") or {}).get(key.removesuffix("_s"))
    text = noted or FORMULAS.get(key, "")
    if key == "mfu" and diagnosis.mfu_convention:
        text = f"{text}\n{diagnosis.mfu_convention}"
    return text
