from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import formatting
from experiments.samples.samples import SAMPLES
from experiments.sentences import Value
from experiments.templatetags import quantities


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
        (0.0123, "speedup", "0.0123×"), (999.96e6, "bytes", "1.00 GB"), (999.4, "bytes", "999 B"),
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
    shown = text.replace(" ", formatting.NBSP)
    assert str(formatting.by_origin(value, unit, origin)) == shown
    assert Value("", value, unit, origin).text == quantities.by_origin(value, unit, origin) == shown
    assert formatting.plain(value, unit, origin) == text
    if origin == "predicted":
        assert quantities.predicted(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.416, "share", "41.6 %"),
        (0.99998, "share", "100 %"),
        (0.9994, "share", "99.9 %"),
        (0.999, "share", "99.9 %"),
        (1.0, "share", "100 %"),
        (0.0, "share", "0 %"),
        (1.7e-6, "share", "< 0.1 %"),
        (1e-15, "share", "0 %"),
        (3.06, "s", "3.06 s"),
        (0.30604, "s", "306 ms"),
        (4.2e-6, "s", "4.20 µs"),
        (25.6e9, "bytes_per_s", "25.6 GB/s"),
        (15.5e9, "bytes", "15.5 GB"),
        (197e12, "flops_per_s", "197 TFLOP/s"),
        (2189.0, "count", "2,189"),
        (1.245, "", "1.25"),
    ],
)
def test_plain_text_has_ordinary_spaces(value: float, unit: str, text: str) -> None:
    assert formatting.plain(value, unit) in (text, text.replace("1.25", "1.24"))


@given(st.floats(min_value=1e-3, max_value=1.0))
def test_a_printed_share_is_within_one_percent(value: float) -> None:
    assert float(formatting.plain(value, "share").rstrip(" %").replace(",", "")) / 100 == pytest.approx(value, rel=0.01)


@given(st.floats(min_value=1e-9, max_value=1e5))
def test_a_printed_time_is_within_one_percent(value: float) -> None:
    number, unit = formatting.plain(value, "s").split(" ")
    scale = {"h": 3600.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (50e6, "bytes", "50 MB"), (1e9, "bytes", "1 GB"), (536_870_912, "bytes", "537 MB"), (0.5, "s", "500 ms"),
        (300.0, "s", "300 s"), (3600, "s", "3,600 s"), (0.125, "share", "12.5 %"), (0.1, "share", "10 %"),
    ],
)  # fmt: skip
def test_a_limit_has_no_trailing_zeros(value: float, unit: str, text: str) -> None:
    assert formatting.limit(value, unit) == text
    assert formatting.limit(79.352e9, "bytes", 6) == "79.352 GB"


@given(st.floats(min_value=1e6, max_value=1e12), st.floats(min_value=1.0001, max_value=2.0))
def test_what_is_compared_can_be_told_apart(value: float, factor: float) -> None:
    one, other = formatting.compared(value, value * factor, "bytes")
    assert one != other
    assert formatting.compared(20e9, 15.9e9, "bytes") == ("20.0 GB", "15.9 GB")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (70.6e9, "70.6 billion"), (2_000_000, "2 million"), (987_654, "987,654"), (1.5e15, "1,500 trillion"),
        (999_999_999, "1 billion"), (999.9e9, "1 trillion"),
    ],
)  # fmt: skip
def test_a_large_count_is_in_words(value: float, text: str) -> None:
    assert formatting.large(value) == text


def test_a_range_has_its_unit_once() -> None:
    spans = [formatting.span(*ends) for ends in ((0.85, 1.374, "speedup"), (1.2213, 1.25, "s"), (0.98, 1.02, "s"))]
    assert spans == ["0.85–1.37×", "1.22–1.25 s", "980 ms–1.02 s"]
    assert formatting.span(1.21, 1.24, "s", 2) == "1.21–1.24 s" and formatting.span(1.2, 1.2, "s", 2) == "1.2–1.2 s"


@pytest.mark.parametrize("unit", ["s", "share", "bytes", "speedup", ""])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_never_reads_as_0(value: float, unit: str) -> None:
    assert "0" not in str(formatting.quantity(value, unit))


def test_counts_and_lists() -> None:
    counted = [formatting.counted(*given) for given in ((1, "op"), (2000, "op"), (0, "mesh"), (2.5, "micro-batch"))]
    assert counted == ["1 op", "2,000 ops", "0 meshes", "2.5 micro-batches"]
    lists = [formatting.listed(list(words)) for words in ("", "a", "ab", "abc")]
    assert lists == ["", "a", "a and b", "a, b and c"] and formatting.listed(["a", "b"], "or") == "a or b"
    assert [formatting.first("abcd", most) for most in (2, 4)] == ["a, b and 2 more", "a, b, c, d"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "40 ms"), (0.42, "0.4 s"), (12.3, "12 s"), (59.7, "1 min 0 s"), (119.8, "2 min 0 s"), (200, "3 min 20 s")],
)
def test_a_duration_never_has_sixty_seconds(value: float, text: str) -> None:
    assert formatting.duration(value).replace(formatting.NBSP, " ") == text


def test_a_predicted_change_has_its_sign() -> None:
    changes = [quantities.predicted_change(value, "s") for value in (-2.178, 0.1234, 0.0)]
    assert changes == [f"−2.2{formatting.NBSP}s", f"+123{formatting.NBSP}ms", "0"]


def test_a_topology_stands_on_one_line() -> None:
    assert formatting.topology((8, 8, 8)) == "8×8×8" in SAMPLES[0].title
    assert not [item.title for item in SAMPLES if " × " in item.title]


def test_words_that_are_near_are_offered() -> None:
    assert formatting.did_you_mean("axis_sise", ["axis_size", "mesh"]) == " Did you mean axis_size?"
    assert formatting.did_you_mean("fusion.1", ["fusion.2", "fusion.3"], quote="`").endswith("or `fusion.2`?")
    assert formatting.did_you_mean("unlike", ["axis_size"]) == ""


def test_a_rise_has_a_plus_and_nothing_has_no_sign() -> None:
    said = [formatting.with_sign(value, str(formatting.seconds(value))) for value in (0.2, -0.2)]
    assert said == [f"+200{formatting.NBSP}ms", f"−200{formatting.NBSP}ms"]
    assert formatting.with_sign(1e-12, "0") == "0"
