"""The columns of the comparison: heights and positions follow the numbers, on one scale."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.bars import Term
from proposals.drawing import step_column
from proposals.presentation import Setting, Side, _beside, _settings

HEIGHT = 102.0


def side(*values: float, low: float | None = None, high: float | None = None, origin: str = "measured") -> Side:
    terms = [Term(f"ici:a{n}", f"Collectives on a{n}", "ici", value) for n, value in enumerate(values)]
    return Side(terms, sum(values), low, high, origin, None, parts=origin)


def rects(drawn: str) -> list[tuple[float, float]]:
    """Top and height of each term, bottom up."""
    return [
        (float(y), float(h))
        for y, h in re.findall(r'<rect class="f-ici" y="([\d.-]+)" width="34" height="([\d.]+)"', drawn)
    ]


def test_a_step_of_half_the_scale_is_half_as_high_and_its_whisker_spans_the_interval() -> None:
    baseline = side(1.0, 1.0)
    drawn = step_column(side(0.5, 0.5, low=0.8, high=1.5, origin="predicted"), baseline, 2.0)
    assert sum(height for _, height in rects(drawn)) == pytest.approx(HEIGHT / 2, abs=0.2)
    high, low = map(float, re.search(r'd="M38 ([\d.]+)h8M38 ([\d.]+)h8', drawn).groups()[::-1])  # type: ignore[union-attr]
    assert (low, high) == (pytest.approx(HEIGHT * 0.6), pytest.approx(HEIGHT * 0.25))
    assert f'y1="{0.0:.1f}"' in drawn  # the baseline fills the scale
    assert drawn.count("−500\xa0ms") == 2 and 'class="hatch"' in drawn


def test_the_baseline_has_no_changes_and_no_hatch() -> None:
    baseline = side(1.0, 0.4)
    drawn = step_column(baseline, baseline, 2.0)
    assert 'class="hatch"' not in drawn and re.findall(r'<text class="d"[^>]*>([^<]+)<', drawn) == []
    assert re.findall(r'<text class="v"[^>]*>([^<]*)<', drawn) == ["1.00\xa0s", "400\xa0ms"]


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=9))
def test_terms_touch_and_lines_of_text_do_not_overlap(values: list[float]) -> None:
    one = side(*values)
    drawn = step_column(one, one, 1.2 * sum(values))
    assert all(below[0] == pytest.approx(above[0] + above[1], abs=0.11) for below, above in pairwise(rects(drawn)))
    lines = [float(y) for y in re.findall(r'<text class="v" x="\d+" y="([\d.-]+)"', drawn)]
    assert all(upper <= lower - 12.9 for lower, upper in pairwise(lines))


def test_every_column_has_the_same_rows() -> None:
    """Axes larger than one and whatever some proposal changes, in one order; what stays has no second value."""
    from types import SimpleNamespace

    config = {"mesh": {"ici": {"data": 4, "seq": 1, "model": 2}, "dcn": {"data": 1}}}
    cards = [
        SimpleNamespace(changes=[("data", "4", "8"), ("model", "2", "1")]),
        SimpleNamespace(changes=[("remat", "full", "none")]),
    ]
    rows = _settings(config, cards)  # type: ignore[arg-type]
    assert rows == [Setting("data", "4"), Setting("model", "2"), Setting("remat", "full")]
    assert [row.after for row in _beside(rows, cards[0])] == ["8", "1", ""]  # type: ignore[arg-type]
    assert [row.after for row in _beside(rows, cards[1])] == ["", "", "none"]  # type: ignore[arg-type]
