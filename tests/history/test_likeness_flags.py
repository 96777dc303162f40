"""Likeness of XLA flags however they are written, and what holds of any two changes."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.case import case_of
from history.labels import BOUND
from history.record import Record, Side
from history.similarity import expected, likeness, most_similar, reason
from tests.history.test_likeness import PIPELINE, TENSOR, change, proposed, with_effect

# XLA flags


def flagged(before: object, after: object, chip: str = "h100", speedup: float = 1.2) -> Record:
    found = change(
        {"data": 16},
        {"data": 16},
        chip=chip,
        speedup=speedup,
        topology=(8, 2) if chip == "h100" else (4, 4),
        parameters=8e9,
    )
    sides = [replace(found.before, training={**found.before.training, "xla_flags": flags}) for flags in (before, after)]
    return replace(found, changes=("xla_flags",), before=sides[0], after=sides[1])


ON = "--xla_gpu_enable_latency_hiding_scheduler=true"


def test_the_same_flag_with_another_value_is_another_change() -> None:
    ours = proposed(flagged([], [ON]))
    assert likeness(case_of(flagged([], {ON.lstrip("-").removesuffix("=true"): True})), ours) > BOUND
    assert likeness(case_of(flagged([], [ON.replace("true", "false")])), ours) == 0.0


def test_a_flag_that_is_the_default_of_the_chip_is_no_change() -> None:
    fused = ["--xla_tpu_enable_async_collective_fusion=true"]
    assert not case_of(flagged([], fused, chip="v5e")).move
    assert case_of(flagged([], fused, chip="v5p")).move == {"xla_flags": 1.0}


def test_the_effect_of_flags_alone_is_carried_by_the_rule_that_found_it() -> None:
    """The model has no term for them: both likeness and effect go by what the runs are called."""
    theirs = case_of(flagged([], [ON], speedup=1.3))
    ours = proposed(flagged([], [ON]))
    found = expected(theirs, ours)
    assert found is not None and found.speedup == pytest.approx(1.3)
    longer = proposed(replace(flagged([], [ON]), before=_longer(flagged([], [ON]).before)))
    value, told = likeness(theirs, longer), expected(theirs, longer)
    assert BOUND < value < 1.0
    assert told is not None and log(told.speedup) == pytest.approx(log(1.3) * value)
    assert "no term for XLA flags" in reason(theirs, longer)
    assert likeness(theirs, case_of(flagged([], [ON], speedup=0.8))) == 0.0


def _longer(side: Side) -> Side:
    return replace(side, training={**side.training, "seq_len": 5120})


# Whatever the runs

DEGREES = st.sampled_from([{"data": 16}, PIPELINE, TENSOR, {"data": 8, "model": 2}, {"data": 8, "pipeline": 2}])
TRAININGS = st.fixed_dictionaries(
    {
        "global_batch": st.sampled_from([64, 256, 1024]),
        "micro_batch": st.sampled_from([1, 2]),
        "seq_len": st.sampled_from([2048, 8192]),
        "remat": st.sampled_from(["none", "full"]),
    }
)
CHANGED = st.builds(
    lambda before, after, training, chip: change(before, after, training=training, chip=chip),
    DEGREES, DEGREES, TRAININGS, st.sampled_from(["h100", "a100-80gb"]),
)  # fmt: skip


@given(CHANGED, CHANGED)
@settings(deadline=None, max_examples=40)
def test_likeness_is_symmetric(one: Record, other: Record) -> None:
    """Of two proposals that fit; what was measured of one of them takes part in one direction alone."""
    a, b = proposed(one), proposed(other)
    if all(case.mechanism is not None and case.mechanism.fits > 0.5 for case in (a, b)):
        assert likeness(a, b) == pytest.approx(likeness(b, a), abs=1e-9)


@given(CHANGED)
@settings(deadline=None, max_examples=40)
def test_a_change_is_wholly_like_itself_and_one_that_changes_nothing_like_none(record: Record) -> None:
    ours = proposed(record)
    fits = ours.mechanism is not None and ours.mechanism.fits > 0.5
    assert likeness(ours, ours) == (1.0 if ours.move and fits else 0.0)


@given(CHANGED, CHANGED, st.floats(-1.2, 1.2))
@settings(deadline=None, max_examples=80)
def test_what_is_shown_never_comes_out_the_other_way_round(one: Record, other: Record, gain: float) -> None:
    theirs, ours = with_effect(case_of(one), gain), proposed(other)
    for _, shown in most_similar([theirs], ours):
        if shown.expected is not None and min(abs(gain), abs(log(shown.expected.speedup))) > 0.011:
            assert (shown.expected.speedup > 1.0) == (gain > 0.0)
