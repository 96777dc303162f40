"""How each KPI is counted, for the panel behind it: what a reader would have to do to get the same number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import glossary

#: KPIs whose rows are the collectives, the largest ops, or the steps.
OF_COLLECTIVES = frozenset(
    ("communication", "communication_exposed", "communication_overlapped", "communication_ops")
)  # fmt: skip
OF_ALL_OPS = frozenset(("flops_utilization", "hbm_utilization", "mfu"))
OF_STEPS = frozenset(("step_time_s", "step_time_spread"))
OF_CORES = frozenset(("stragglers", "duty_cycle", "idle"))


def formula(key: str, data: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """How the KPI was counted; as the profile's reader noted it, else as the Analyzer counts it (the glossary)."""
    noted = (summary.get("computed") or {}).get(key) or (summary.get("computed") or {}).get(key.removesuffix("_s"))
    known = glossary.by_key().get(key)
    text = noted or (known.formula if known else "")
    if key == "mfu" and data.get("mfu_convention"):
        text = f"{text}\n{data['mfu_convention']}"
    return text
