"""KPIs of a session: XProf's where it states them, else computed from the cores' timelines, else not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import formatting
from experiments.ingest.roof import Resource, utilization
from experiments.ingest.timeline import CoreTimeline
from experiments.ingest.values import number
from experiments.step_profile import Op

KPI_KEYS = (
    "duty_cycle",
    "idle",
    "communication",
    "input",
    "host",
    "output",
    "mxu_utilization",
    "hbm_utilization",
    "flops_utilization",
    "goodput",
)

#: How what XProf does not state is computed; shown beside the number.
FORMULAS = {
    "duty_cycle": "time in which any op ran / profiled time, mean over cores",
    "idle": "1 − duty cycle",
    "communication": "merged time of collective ops / profiled time, mean over cores",
    "hbm_utilization": "HBM bytes of all ops / profiled time / peak bandwidth",
    "flops_utilization": "FLOPs of all ops by XLA's cost model / profiled time / peak rate",
    "goodput": "time in which ops of a whole step ran / time from first to last device activity, mean over cores",
    "input": "merged time of infeed ops not hidden by others / step time, mean over cores",
    "output": "merged time of outfeed ops not hidden by others / step time, mean over cores",
}


@dataclass
class Kpis:
    """values: share 0–1 or None by key of KPI_KEYS.  reasons: why, for each None.  computed: formulas, for our own."""

    values: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(KPI_KEYS))
    reasons: dict[str, str] = field(default_factory=dict)
    computed: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: float | None, formula: str = "") -> None:
        if value is None or not -1e-6 <= value <= 1.0 + 1e-3:
            return
        self.values[key] = min(max(value, 0.0), 1.0)
        if formula:
            self.computed[key] = formula
        else:
            self.computed.pop(key, None)

    def put_utilization(
        self,
        key: str,
        stated: float | None,
        ops: Sequence[Op],
        resource: Resource,
        widened: float = 1.0,
    ) -> None:
        """XProf's utilisation less what ops above the peak add.

        widened: the profiled time over that of the steps, of which the utilisation then is.
        """
        used, why = utilization(stated, ops, resource)
        if used is not None and stated is not None:
            self.put(key, used * widened, f"{FORMULAS[key]}, {why}" if why else FORMULAS[key])
            self.reason(key, f"XProf reports {formatting.share(stated, 2)} of peak, which exceeds the chip's limit.")

    def reason(self, key: str, why: str) -> None:
        if self.values[key] is None:
            self.reasons.setdefault(key, why)

    def explain(self, why: str) -> None:
        """A reason for everything that is still without value and reason."""
        for key in KPI_KEYS:
            self.reason(key, why)


#: XProf's overview prints percentages with one decimal.
HALF_OF_LAST_DIGIT = 0.0005


def percent(text: Any) -> float | None:
    """`"93.2%"` or `93.2` as 0.932."""
    value = number(str(text).rstrip("% ")) if isinstance(text, str) else number(text)
    return None if value is None else value / 100


def from_timelines(kpis: Kpis, cores: Sequence[CoreTimeline], silent: int = 0, recorded: int | None = None) -> None:
    """Duty cycle, idle, communication and goodput from the merged op intervals.

    silent: devices that recorded no op.  What the cores would have exchanged with them was not recorded either, so that
    no collective at all is no measured zero then.  recorded: devices that recorded ops, where cores are not all.
    """
    window = sum(core.window_s for core in cores)
    if not cores or window <= 0:
        return
    duty = sum(core.busy_s for core in cores) / window
    kpis.put("duty_cycle", duty, FORMULAS["duty_cycle"])
    kpis.put("idle", 1 - duty, FORMULAS["idle"])
    talking = sum(core.communication_s for core in cores)
    if talking or not silent:
        kpis.put("communication", talking / window, FORMULAS["communication"])
    kpis.reason(
        "communication",
        f"{silent} of {(recorded or len(cores)) + silent} devices recorded no ops and the others no collectives, so "
        "communication is unknown.",
    )
    stepped = [core for core in cores if core.numbers]
    span = sum(core.span_s for core in stepped)
    if span > 0:
        kpis.put("goodput", sum(core.busy_s for core in stepped) / span, FORMULAS["goodput"])
    kpis.reason("goodput", "The profile has no step markers, so productive time is unknown.")


def from_overview_shares(overview: list[Any]) -> dict[str, float | None]:
    """Duty cycle and idle time as XProf's overview states them."""
    first = overview[0] if overview and isinstance(overview[0], dict) else {}
    summary = first.get("p") or {}
    return {
        "duty_cycle": percent(summary.get("device_duty_cycle_percent")),
        "idle": percent(summary.get("device_idle_time_percent")),
    }


def is_contradicted_zero(stated: float | None, known: float | None) -> bool:
    """Whether 0 stands for what was not recorded, or for less than is printed: events or tables show more than nothing.

    known: the same quantity, or a lower bound of it, from what was recorded; None where nothing tells.
    """
    return stated == 0.0 and known is not None and known >= HALF_OF_LAST_DIGIT


def from_overview(kpis: Kpis, overview: list[Any], *, on_tpu: bool, has_steps: bool, executed: bool = False) -> None:
    """What XProf's overview page states.  Its zeros of a profile without device ops must not come here.

    executed: steps are executions of the program, of which XProf states no shares.
    """
    properties = [table.get("p") or {} if isinstance(table, dict) else {} for table in overview]
    properties += [{}] * (3 - len(properties))
    steps = properties[1]
    if on_tpu and not executed:
        stated = from_overview_shares(overview)
        if not is_contradicted_zero(stated["duty_cycle"], kpis.values["duty_cycle"]):
            kpis.put("duty_cycle", stated["duty_cycle"])
            idle, exact = stated["idle"], kpis.values["idle"]
            # 0.0 % may be the 0.04 % that the steps of the same cores show as idle time: the timelines tell it exactly.
            # More than that is time inside loops, which XProf counts as theirs.
            if idle != 0.0 or exact is None or exact >= HALF_OF_LAST_DIGIT:
                kpis.put("idle", idle)
    if not has_steps or executed:
        for key in ("input", "host", "output"):
            kpis.reason(key, "The profile has no step markers, so waiting time cannot be attributed.")
        return
    average = number(steps.get("steptime_ms_average"))
    if not average:
        return

    def share(*names: str) -> float | None:
        values = [number(steps.get(name)) for name in names]
        return None if None in values else sum(value or 0.0 for value in values) / average

    if on_tpu:
        kpis.put("input", percent(steps.get("infeed_percent_average")))
        kpis.put("output", share("tc_outfeed_ms_average"))
        kpis.put("host", share("host_transfer_ms_average"))
    else:
        kpis.put("input", share("infeed_time_ms_avg"))
        kpis.put("output", share("outfeed_time_ms_avg"))
        kpis.put("host", share("host_compute_time_ms_avg", "kernel_launch_time_ms_avg"))
