"""Strips of steps: lengths follow the times, parts fill their step, and the table says the same."""

from __future__ import annotations

import re

import pytest

from diagnosis import strips
from experiments.codec import Codec
from experiments.step_profile import Timeline


def timeline(durations, idle=0.25, **more):
    data = {
        "cores": [f"TPU:{n}" for n in range(len(durations))],
        "hosts": ["host-0"] * len(durations),
        "steps": list(range(10, 10 + len(durations[0]))),
        "durations_s": durations,
        "parts_s": {
            "compute": [[(1 - idle) * value for value in row] for row in durations],
            "idle": [[idle * value for value in row] for row in durations],
        },
        "cores_total": len(durations),
        "steps_total": len(durations[0]),
    }
    return Codec(Timeline).read({**data, **more})


def boxes(path):
    return [tuple(map(float, box)) for box in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", path)]


def test_no_steps_no_strips():
    assert strips.strips(Timeline()) is None


def test_the_slowest_core_fills_the_width_and_others_end_before_it():
    drawn = strips.strips(timeline([[1.0, 1.0], [1.0, 3.0]]))
    fast, slow = drawn.strips
    assert (slow.mean_s, slow.most_s, slow.most_step) == (2.0, 3.0, 11)
    ends = [max(x + width for _, path in core.paths for x, _, width, _ in boxes(path)) for core in (fast, slow)]
    assert ends[1] == pytest.approx(strips.WIDTH, abs=1.0)
    assert ends[0] == pytest.approx(strips.WIDTH / 2, abs=1.0)
    assert [cell.width for cell in slow.cells] == [250.0, 750.0]
    assert slow.behind >= 0 >= fast.behind


def test_parts_share_their_step_as_measured():
    (row,) = strips.strips(timeline([[2.0]], idle=0.25)).strips
    widths = {css: sum(box[2] for box in boxes(path)) for css, path in row.paths}
    assert widths["compute"] / widths["idle"] == pytest.approx(3.0, rel=0.01)
    assert dict(row.parts) == {"Device compute": 1.5, "Idle": 0.5}


def test_many_steps_become_columns_as_high_as_they_are_long():
    drawn = strips.strips(timeline([[1.0] * 99 + [2.0]], idle=0.0))
    assert drawn.columns
    heights = [box[3] for _, path in drawn.strips[0].paths for box in boxes(path)]
    assert max(heights) == strips.HEIGHT and min(heights) == pytest.approx(strips.HEIGHT / 2)
    assert [key for key, _, _ in drawn.parts] == ["compute"]  # nothing idles


def test_a_thousand_cells_carry_no_words_of_their_own():
    assert strips.strips(timeline([[1.0] * 20] * 50)).strips[0].cells == []


def test_a_step_opens_its_parts():
    title, duration, parts = strips.step_parts(timeline([[1.0, 2.0]]), 0, 1)
    assert title == "Step 11 on TPU:0 on host-0"
    assert (duration, sum(value for _, value in parts)) == (2.0, 2.0)
    with pytest.raises(LookupError):
        strips.step_parts(timeline([[1.0]]), 0, 7)
    with pytest.raises(LookupError):
        strips.step_parts(Timeline(), 0, 0)


def test_cores_of_several_hosts_are_told_apart():
    data = timeline([[1.0], [1.0]], cores=["TPU:0", "TPU:0"], hosts=["run-7-host-0", "run-7-host-1"])
    assert [row.place for row in strips.strips(data).strips] == ["host-0", "host-1"]
    assert [row.place for row in strips.strips(timeline([[1.0], [1.0]])).strips] == ["", ""]
