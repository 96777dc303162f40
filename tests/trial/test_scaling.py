"""A configuration scaled to fit keeps its proportions and its rules, and says what is smaller."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings

from experiments.trial.scaling import Room, scale
from perfmodel import legality
from perfmodel.config_file import config_to_json, parse_config
from tests.launch.configs import config, legal_configs

BIG = Room(devices=10**6, bytes=1e18, flops=1e30)
SMALL = Room(devices=8, bytes=4e9, flops=1.5e11)


def test_what_fits_stays_as_it_is():
    given_config = config("v6e", [4, 4], {"data": 4, "seq": 4})
    found = scale(given_config, BIG)
    assert found.config == given_config and found.changes == ()


def test_a_large_model_becomes_a_step_of_seconds_and_every_change_is_named():
    given_config = config("v6e", [4, 4], {"data": 4, "seq": 4}, global_batch=32)
    found = scale(given_config, SMALL)
    assert prod(size for _, size in found.config.mesh.ici) <= 8
    assert found.config.model.layers < given_config.model.layers
    named = {line.split(" ")[0] for line in found.changes}
    assert {"mesh", "layers"} <= named
    for field in ("layers", "d_model", "heads", "vocab"):
        changed = getattr(found.config.model, field) != getattr(given_config.model, field)
        assert (field in named) == changed


def test_the_smallest_that_does_not_fit_is_said():
    with pytest.raises(ValueError, match="Even the smallest step"):
        scale(config("v6e", [4, 4], {"data": 16}), Room(8, 1e6, 1e6))
    with pytest.raises(ValueError, match="needs a model"):
        scale(config("v6e", [4, 4], {"data": 16}, model=None), SMALL)


@settings(max_examples=25, deadline=None)
@given(legal_configs())
def test_what_is_scaled_is_a_configuration_that_keeps_the_rules(drawn):
    try:
        found = scale(drawn, SMALL)
    except ValueError:
        return
    again, warnings = parse_config(config_to_json(found.config))
    assert again == found.config and not warnings
    names = {rule for rule, broken in legality.indivisible(again).items() if broken}
    assert not names & {"batch", "sequence", "heads", "kv_heads", "d_ff"}, (names, found.changes)
