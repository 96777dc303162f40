"""What users see of the shipped profiles: the product's own reading of them."""

from __future__ import annotations

from functools import cache

import pytest

from evaluation.steps import shipped
from experiments.step_profile import StepProfile

pytestmark = pytest.mark.slow


@cache
def profile(key: str) -> StepProfile:
    return shipped.sample(key)[0]


@pytest.mark.parametrize(
    ("number", "step_s", "communication", "steps", "shares"),
    [
        (1, 35.65645, 0.0257, 3, (0.0062, 0.0055, 0.0053, 0.0048, 0.0045)),
        (2, 2.51650, 0.0752, 6, (0.0497, 0.0240, 0.0162, 0.0124, 0.0109)),
        (3, 7.35469, 0.0535, 8, (0.0174, 0.0099, 0.0089, 0.0079, 0.0075)),
    ],
)
def test_reconstructions_show_the_printed_numbers(
    number: int, step_s: float, communication: float, steps: int, shares: tuple[float, ...]
) -> None:
    read = profile(f"asap-experiment-{number}")
    assert read.step_time_s == pytest.approx(step_s, abs=5e-6)
    if number == 3:  # what is printed is the mean all-reduce time: all-reduces, and no other collective
        reduced = sum(op.time_share for op in read.ops if op.category == "all-reduce")
        assert reduced == pytest.approx(communication, abs=5e-4)
        assert read.kpis["communication"] > 0.3
    else:
        assert read.kpis["communication"] == pytest.approx(communication, abs=5e-5)
    assert len(read.steps) == steps
    assert [op.time_share for op in read.ops[:5]] == pytest.approx(shares, abs=5.1e-5)
    assert read.memory.peak_bytes is None  # the paper prints none, so none is invented


@pytest.mark.parametrize("key", ["cpu-data8", "cpu-data2-seq2-model2"])
def test_recordings_show_what_a_cpu_can_measure_and_no_more(key: str) -> None:
    read = profile(key)
    assert (read.device.chip, read.device.core_count) == (None, 8)
    assert len(read.steps) == 4
    communication = read.kpis["communication"]
    assert communication is not None
    assert 0.01 < communication < 0.99
    assert any("replica_groups" in op.hlo for op in read.ops)
    assert read.kpis["hbm_utilization"] is None
    assert sum(op.time_share for op in read.ops) == pytest.approx(1.0, abs=0.02)
