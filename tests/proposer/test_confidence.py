"""The confidence of proposals: what was learnt follows from the pairs, and behaves as a probability should."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from evaluation import fit_confidence
from evaluation.measured_pairs import log_gain, measured_pairs
from perfmodel.confidence import Confidence, OwnPair, shipped, updated

pytestmark = pytest.mark.slow

GAINS = st.floats(-1.0, 1.0)
SPREADS = st.floats(0.01, 0.5)

probability = shipped().probability


NUMBERS = json.loads(fit_confidence.NUMBERS.read_text(encoding="utf-8"))


def test_shipped_numbers_are_those_of_the_report() -> None:
    for name in ("floor", "floor_assumed", "freedom", "families"):
        assert getattr(shipped(), name) == pytest.approx(NUMBERS["fit"][name], rel=0.02)


@pytest.mark.parametrize("how", ["known", "unknown"])
def test_ranges_hold_and_stated_is_about_what_came_true_on_families_left_out(how: str) -> None:
    found = NUMBERS[how]["all"]
    assert 0.74 <= found["covered"] <= 0.86
    assert found["covered"] > found["covered_raw"]  # why there is a floor at all
    assert found["brier"] < 0.25
    assert -0.15 < found["stated"] - found["right"] < 0.1  # of models that are not known, too little is promised


def test_the_floor_at_which_four_in_five_lie_within() -> None:
    """Errors of 0.1 to 1.0 with no spread of their own: 80 % of them are at most 0.8."""
    pairs = fit_confidence.pairs()[:10]
    rows = [
        fit_confidence.Predicted(pair, pair.one, pair.other, 0.0, 1e-9, 0.1 * (i + 1), 1.0)
        for i, pair in enumerate(pairs)
    ]
    floor = fit_confidence.floor_of(rows)
    reach = float(Confidence(floor, floor, fit_confidence.FREEDOM, 10, 0.1).range_sigma(1e-9)) * 1.2816
    assert reach == pytest.approx(0.8, abs=0.08)


def test_assumed_models_are_never_surer() -> None:
    assert shipped().where_assumed().floor >= shipped().floor


def test_both_directions_of_a_pair_gain_the_opposite() -> None:
    for pair in measured_pairs()[::97]:
        assert log_gain(pair.one, pair.other) == pytest.approx(-log_gain(pair.other, pair.one))


@given(GAINS, GAINS, SPREADS)
def test_more_gain_is_more_confidence_and_no_gain_is_even_odds(one: float, other: float, sigma: float) -> None:
    low, high = sorted((one, other))
    assert probability(low, sigma) <= probability(high, sigma)
    assert probability(0.0, sigma) == pytest.approx(0.5)
    assert probability(one, sigma) + probability(-one, sigma) == pytest.approx(1.0)


@given(st.floats(0.01, 1.0), SPREADS, SPREADS)
def test_more_spread_is_less_confidence_in_a_gain(gain: float, one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    assert probability(gain, narrow) >= probability(gain, wide)
    assert probability(gain, narrow) <= ndtr(gain / narrow)  # at most the confidence of the model's own spread alone
    assert probability(gain, narrow, worth=0.05) < probability(gain, narrow)


def test_what_runs_is_no_change_and_has_no_range() -> None:
    assert float(shipped().range_sigma(0.0)) == 0.0
    assert np.all(shipped().range_sigma(np.array([0.01, 0.1])) >= shipped().floor)


def draws(fit: Confidence, count: int, stretch: float, shift: float) -> list[OwnPair]:
    rng = np.random.default_rng(1)
    scale = float(fit.scale(0.05)) * stretch
    return [OwnPair(0.1, 0.05, 0.1 + shift + scale * float(z)) for z in rng.standard_t(fit.freedom, count)]


def test_few_own_pairs_move_the_fit_little_and_many_move_it_all_the_way() -> None:
    fit = Confidence(floor=0.14, floor_assumed=0.3, freedom=4.0, families=15)
    assert updated(fit, []) == fit
    one = updated(fit, [OwnPair(0.1, 0.05, 2.0)])  # a wild one
    assert abs(one.stretch - 1.0) < 0.25 and abs(one.shift) < 0.05
    close = 0.05 * float(fit.scale(0.05))
    same = updated(fit, draws(fit, 4000, 1.0, 0.0))
    assert same.stretch == pytest.approx(1.0, abs=0.05) and same.shift == pytest.approx(0.0, abs=close)
    better = updated(fit, draws(fit, 4000, 0.3, 0.05))
    assert better.stretch < 0.5
    assert better.shift == pytest.approx(0.05, abs=close)
    assert better.probability(0.1, 0.05) > fit.probability(0.1, 0.05)


def test_own_pairs_of_what_ran_teach_nothing() -> None:
    assert updated(shipped(), [OwnPair(0.0, 0.0, 0.3)]) == shipped()
