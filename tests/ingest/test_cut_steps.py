"""Steps that the recording cut off are no steps; steps that merely differ are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.ingest import read_profile
from experiments.ingest.cut_steps import cut_off, whole_steps
from experiments.step_profile import Step, StepProfile
from tests.ingest.conftest import OPS, Save
from tests.ingest.xspaces import PS_PER_US, tpu_xspace


def test_the_first_and_the_last_step_may_be_cut_off() -> None:
    times = [60.0, 120.1, 120.9, 120.3, 120.2, 3.0]
    assert cut_off(times, times) == [0, 5]
    assert cut_off(times[1:], times[1:]) == [4]
    assert cut_off([120.0, 3.0], [120.0, 3.0]) == [1]


def test_a_short_step_in_the_middle_is_a_step() -> None:
    times = [120.0, 121.0, 30.0, 120.5, 120.2]
    assert cut_off(times, times) == []


def test_warm_up_is_not_taken_for_the_usual_step() -> None:
    """The first step compiles: the others do the same work, and are whole; with two, nobody knows which is usual."""
    times, work = [5200.0, 120.0], [118.0, 118.0]
    assert cut_off(times, work) == []
    assert cut_off([5200.0, 120.0, 121.0, 119.0], [118.0] * 4) == [0]


def test_steps_that_vary_are_not_cut_off() -> None:
    times = [80.0, 120.0, 95.0, 140.0, 110.0, 82.0]
    assert cut_off(times, times) == []


def test_counted_ops_tell_a_quick_step_from_a_cut_one() -> None:
    """96 % of the time of steps that hardly vary: cut off if ops are missing, whole if none are."""
    times = [120.0, 120.1, 119.9, 120.0, 115.0]
    assert cut_off(times, times, [500, 500, 500, 500, 480]) == [4]
    assert cut_off(times, times, [500, 500, 500, 500, 500]) == []
    assert cut_off(times, times) == []


def test_one_step_alone_is_a_step() -> None:
    assert cut_off([3.0], [3.0]) == []
    assert whole_steps([Step(7, 0.003)])[0] == [Step(7, 0.003)]


def test_steps_of_a_warm_up_are_excluded_and_named() -> None:
    steps = [Step(0, 5.2), Step(1, 0.9), *(Step(i, 0.12) for i in range(2, 6))]
    whole, notes = whole_steps(steps)
    assert [step.number for step in whole] == [2, 3, 4, 5] and len(notes) == 2


def test_step_cut_off_by_the_end_of_an_xplane(save: Save) -> None:
    """Five steps of 100 µs with three ops each; of the last only the first 30 µs were recorded."""
    space = tpu_xspace(OPS, steps=5, cores=(0, 1))
    for plane in space.planes:
        for line in plane.lines:
            kept = [event for event in line.events if event.offset_ps < 430 * PS_PER_US]
            del line.events[len(kept) :]
            for event in line.events:
                event.duration_ps = min(event.duration_ps, 430 * PS_PER_US - event.offset_ps)
    profile = read_profile([save(space=space)])
    assert [step.number for step in profile.steps] == [1, 2, 3, 4]
    assert profile.step_time_s == pytest.approx(100e-6)
    assert profile.step_time_stdev_s == pytest.approx(0, abs=1e-12)
    assert profile.timeline.steps == (1, 2, 3, 4)
    assert any("ends in step 5: its 30.0 µs are excluded" in note.message for note in profile.notes)
    assert all(sum(core.breakdown_s.values()) == pytest.approx(100e-6) for core in profile.cores)


def overview(tmp_path: Path, times_ms: list[float], **properties: str) -> StepProfile:
    columns = ("stepnum", "tcComputeTimeMs", "tcInfeedTimeMs", "tcOutfeedTimeMs", "tcIdleTimeMs", "hostTransferTimeMs")
    rows = [
        {"c": [{"v": str(i)}, {"v": t - 0.1}, {"v": 0}, {"v": 0}, {"v": 0.1}, {"v": 0}]} for i, t in enumerate(times_ms)
    ]
    mean = sum(times_ms) / len(times_ms)
    steps: dict[str, Any] = {"cols": [{"id": name} for name in columns], "rows": rows}
    steps["p"] = {"steptime_ms_average": f"{mean:.1f}", "steptime_ms_standard_deviation": "53.8", **properties}
    summary = {
        "device_duty_cycle_percent": "0.0%",
        "device_idle_time_percent": "0.0%",
        "mxu_utilization_percent": "0.0%",
    }
    environment = {"device_type": "TPU v5p", "device_core_count": "8", "host_count": "1"}
    empty: dict[str, Any] = {"cols": [], "rows": []}
    document = [{**empty, "p": summary}, steps, {**empty, "p": environment}, empty, empty, {}, empty]
    columns = ("hlo_op_name", "category", "occurrences", "total_self_time", "total_self_time_percent")
    hlo = {
        "cols": [{"id": name} for name in columns],
        "rows": [
            {"c": [{"v": "fusion.1"}, {"v": "convolution fusion"}, {"v": 8}, {"v": 700.0}, {"v": 70.0}]},
            {"c": [{"v": "all-gather.2"}, {"v": "all-gather"}, {"v": 8}, {"v": 290.0}, {"v": 29.0}]},
        ],
    }  # fmt: skip
    paths = [tmp_path / "overview_page.json", tmp_path / "hlo_stats.json"]
    for path, content in zip(paths, (document, hlo), strict=True):
        path.write_text(json.dumps(content))
    return read_profile(paths)


def test_step_cut_off_in_a_json_export(tmp_path: Path) -> None:
    profile = overview(tmp_path, [120.9, 120.1, 120.1, 120.1, 3.1])
    assert profile.step_time_s == pytest.approx(0.1203)
    assert profile.step_time_stdev_s is not None and profile.step_time_stdev_s < 1e-3
    assert len(profile.steps) == 4
    assert "its 96.9 ms include" in profile.computed["step_time"]
    assert any("step 4: its 3.10 ms are excluded" in note.message for note in profile.notes)


def test_printed_zeros_that_tables_contradict_are_not_reported_as_zeros(tmp_path: Path) -> None:
    """Duty cycle and idle time cannot both be 0; ops ran, and the step table has 0.1 ms of idle time per step."""
    profile = overview(tmp_path, [10.0, 10.0, 10.0, 10.0])
    assert profile.kpis["idle"] == pytest.approx(0.01)
    assert profile.kpis["duty_cycle"] == pytest.approx(0.99)
    assert "nothing was recorded" in profile.computed["duty_cycle"]
    assert profile.kpis["mxu_utilization"] is None and profile.not_measured["mxu_utilization"]
    assert profile.kpis["communication"] == pytest.approx(0.29)
    assert profile.step_time_s == pytest.approx(0.01) and "step_time" not in profile.computed


def test_stated_values_stay_where_nothing_contradicts_them(tmp_path: Path) -> None:
    profile = overview(tmp_path, [10.0, 10.0, 10.0], infeed_percent_average="0.0")
    assert profile.kpis["input"] == 0.0
