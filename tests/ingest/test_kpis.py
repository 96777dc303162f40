"""KPIs from timelines: what was measured, and what only looks like zero."""

from __future__ import annotations

from experiments.ingest.kpis import Kpis, from_overview, from_timelines
from experiments.ingest.timeline import CoreTimeline


def core(busy_s: float, communication_s: float = 0.0) -> CoreTimeline:
    parts = {"compute": (busy_s,), "idle": (1.0 - busy_s,)}
    return CoreTimeline(
        "TPU:0", "h", (1,), (1.0,), parts, 1.0, busy_s, communication_s, communication_s, communication_s, 1.0, 3, 3
    )


def test_no_collective_beside_silent_devices_is_not_measured() -> None:
    kpis = Kpis()
    from_timelines(kpis, [core(0.9)], silent=7)
    assert kpis.values["communication"] is None and "7 of 8 devices" in kpis.reasons["communication"]


def test_a_single_chip_communicates_nothing() -> None:
    kpis = Kpis()
    from_timelines(kpis, [core(0.9)])
    assert kpis.values["communication"] == 0.0


def test_recorded_collectives_count_beside_silent_devices() -> None:
    kpis = Kpis()
    from_timelines(kpis, [core(0.9, 0.2)], silent=7)
    assert kpis.values["communication"] == 0.2


def test_the_overviews_rounded_zero_does_not_hide_idle_time() -> None:
    def idle(stated: str, busy_s: float) -> float | None:
        kpis = Kpis()
        from_timelines(kpis, [core(busy_s)])
        summary = {"device_idle_time_percent": stated, "device_duty_cycle_percent": "100.0%"}
        from_overview(kpis, [{"p": summary}], on_tpu=True, has_steps=False)
        return kpis.values["idle"]

    assert idle("0.0%", 0.9999) == 1 - 0.9999
    assert idle("0.3%", 0.998) == 0.003
    assert idle("0.0%", 0.9) == 0.0  # more than rounding: XProf knows what its ops cover
