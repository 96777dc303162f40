from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.ingest.intervals import IntervalUnion

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=25)


def cover(intervals: list[tuple[int, int]]) -> IntervalUnion:
    array = np.array(intervals, np.int64).reshape(-1, 2)
    return IntervalUnion.of(array[:, 0], array[:, 0] + array[:, 1])


def points(intervals: list[tuple[int, int]]) -> set[int]:
    return {t for start, length in intervals for t in range(start, start + length)}


@given(INTERVALS)
def test_total_is_the_number_of_covered_points(intervals: list[tuple[int, int]]) -> None:
    assert cover(intervals).total == len(points(intervals))


@given(INTERVALS, INTERVALS)
def test_union(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert cover(first).union(cover(second)).total == len(points(first) | points(second))


@given(INTERVALS, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40)), min_size=1, max_size=8))
def test_time_within_windows(intervals: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in windows], np.int64)
    ends = np.array([start + length for start, length in windows], np.int64)
    expected = [len(points(intervals) & set(range(start, start + length))) for start, length in windows]
    assert cover(intervals).within(starts, ends).tolist() == expected
