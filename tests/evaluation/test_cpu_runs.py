"""The landscape of real runs on CPU devices: what was recorded can be run again, and is worth a search."""

from __future__ import annotations

import numpy as np

from evaluation.campaigns.cpu_runs import CONFIGS, DEVICES, landscape


def test_every_recorded_configuration_is_legal_and_fills_the_devices() -> None:
    found = landscape()
    assert len(found) == CONFIGS and found.candidates.legal.all()
    assert {config.hardware.chips for config in found.candidates.configs} == {DEVICES}
    assert np.isfinite(found.time_s).all() and (found.time_s > 0).all()


def test_predictions_are_in_units_of_what_runs_before_the_campaign() -> None:
    found = landscape()
    for start in (0, 7):
        assert np.isclose(found.seen_from(start).time_s[start], found.time_s[start])


def test_the_slowest_costs_much_more_than_the_fastest() -> None:
    assert landscape().regret.max() > 0.5
