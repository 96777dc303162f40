from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import formatting
from experiments.samples.samples import SAMPLES
from experiments.sentences import Value
from experiments.templatetags import quantities
from proposals.agents.figures.figure import Figure


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (35.71, "35.7 s"), (7.35469, "7.35 s"), (0.7168, "717 ms"), (0.00407, "4.07 ms"), (3.2e-5, "32.0 µs"),
        (-0.29, "−290 ms"), (0.9997, "1.00 s"), (123.4, "123 s"), (0.0, "0 ms"),
    ],
)  # fmt: skip
def test_seconds_take_the_unit_an_engineer_would(value: float, text: str) -> None:
    assert str(formatting.seconds(value)).replace(formatting.NBSP, " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.6, "60.0 %"),
        (0.0535, "5.35 %"),
        (0.99998, "100 %"),
        (0.9946, "99.5 %"),
        (0.00002, "< 0.1 %"),
        (1.84e-6, "< 0.1 %"),
        (-0.0004, "> −0.1 %"),
        (0.001, "0.1 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
    ],
)
def test_shares_have_three_digits_at_most(value: float, text: str) -> None:
    assert str(formatting.share(value)).replace(formatting.NBSP, " ") == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (25.6e9, "bytes_per_s", "25.6 GB/s"), (197e12, "flops_per_s", "197 TFLOP/s"), (1.92, "speedup", "1.92×"),
        (142.857, "speedup", "143×"), (704, "count", "704"), (12, "bytes", "12 B"), (16.9e9, "bytes", "16.9 GB"),
    ],
)  # fmt: skip
def test_quantities_carry_si_units(value: float, unit: str, text: str) -> None:
    assert str(formatting.quantity(value, unit)).replace(formatting.NBSP, " ") == text


@given(st.floats(min_value=1e-9, max_value=9e4))
def test_a_time_is_printed_within_its_last_digit(value: float) -> None:
    number, unit = str(formatting.seconds(value)).split(formatting.NBSP)
    scale = {"days": 86_400.0, "h": 3_600.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.006)


@given(st.floats(min_value=1e-3, max_value=1.0))
def test_a_share_is_printed_within_its_last_digit(value: float) -> None:
    found = float(str(formatting.share(value)).split(formatting.NBSP)[0]) / 100
    assert found == pytest.approx(value, rel=0.06, abs=1e-9)
    assert (found == 1.0) == (round(value, 3) == 1.0)


@pytest.mark.parametrize(
    ("value", "unit", "origin", "text"),
    [
        (6.178, "s", "predicted", "6.2 s"), (6.178, "s", "measured", "6.18 s"), (0.3852, "share", "predicted", "39 %"),
        (1.187, "speedup", "predicted", "1.19×"), (0.66, "probability", "predicted", "66 %"),
    ],
)  # fmt: skip
def test_a_prediction_has_two_digits_wherever_it_is_shown(value: float, unit: str, origin: str, text: str) -> None:
    plain = text.replace(" ", formatting.NBSP)
    assert str(formatting.by_origin(value, unit, origin)) == plain
    assert Value("", value, unit, origin).text == quantities.by_origin(value, unit, origin) == plain
    assert plain(value, unit, origin) == Figure("", value, unit, origin, "").text == text
    if origin == "predicted":
        assert quantities.predicted(value, unit) == plain


def test_a_predicted_change_has_its_sign() -> None:
    changes = [quantities.predicted_change(value, "s") for value in (-2.178, 0.1234, 0.0)]
    assert changes == [f"−2.2{formatting.NBSP}s", f"+123{formatting.NBSP}ms", "0"]


def test_a_topology_stands_on_one_line() -> None:
    assert formatting.topology((8, 8, 8)) == "8×8×8" in SAMPLES[0].title
    assert not [item.title for item in SAMPLES if " × " in item.title]
