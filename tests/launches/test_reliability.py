"""Reliability of stated confidences from few results."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from proposals.reliability import MOST_GROUPS, groups, wilson


def test_too_few_results_show_nothing():
    assert groups([]) == () and groups([(0.7, True)] * 3) == ()
    assert len(groups([(0.7, True)] * 4)) == 1


@pytest.mark.parametrize(("came", "results"), [(0, 4), (4, 4), (3, 7), (50, 100)])
def test_the_interval_is_wilsons(came, results):
    known = binomtest(came, results).proportion_ci(0.95, method="wilson")
    assert wilson(came, results) == pytest.approx((known.low, known.high), abs=1e-3)


def test_a_calibrated_source_lies_on_the_diagonal():
    rng = np.random.default_rng(0)
    said = rng.uniform(0.3, 0.95, 3000)
    found = groups([(float(p), bool(rng.random() < p)) for p in said])
    assert len(found) == MOST_GROUPS and sum(group.results for group in found) == 3000
    assert all(abs(group.came - group.stated) < 0.07 for group in found)
    assert [group.stated for group in found] == sorted(group.stated for group in found)


def test_overconfidence_shows_below_the_diagonal():
    (group,) = groups([(0.9, n % 2 == 0) for n in range(6)])
    assert group.came == 0.5 and group.stated == pytest.approx(0.9)
