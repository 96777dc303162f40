"""Numbers as sentences print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatting import plain


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
def test_text(value: float, unit: str, text: str) -> None:
    assert plain(value, unit) in (text, text.replace("1.25", "1.24"))


@given(st.floats(min_value=1e-3, max_value=1.0))
def test_a_printed_share_is_within_one_percent(value: float) -> None:
    assert float(plain(value, "share").rstrip(" %").replace(",", "")) / 100 == pytest.approx(value, rel=0.01)


@given(st.floats(min_value=1e-9, max_value=1e5))
def test_a_printed_time_is_within_one_percent(value: float) -> None:
    number, unit = plain(value, "s").split(" ")
    scale = {"h": 3600.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.01)
