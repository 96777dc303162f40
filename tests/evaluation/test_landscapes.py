"""Simulated worlds and their landscapes: limits that any cluster keeps, and what the calibration makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from evaluation.calibration_report import Trial
from evaluation.landscape_scores import Priced, score
from evaluation.landscapes import Scenario, scenarios
from evaluation.simulated import simulate
from evaluation.simulated_cluster import World
from perfmodel.config import Mesh
from perfmodel.prediction import predict


def scenario(kind: str, chip: str) -> Scenario:
    """Of the open half."""
    return next(s for s in scenarios() if s.kind == kind and s.config.hardware.chip == chip and not s.apart)


def with_mesh(found: Scenario, **sizes: int) -> Scenario:
    return replace(found, config=replace(found.config, mesh=Mesh(tuple(sizes.items()))))


def test_both_halves_hold_every_kind_on_both_kinds_of_chip() -> None:
    kinds = {s.kind for s in scenarios()}
    assert len(kinds) == 12
    for apart in (True, False):
        half = [s for s in scenarios() if s.apart == apart]
        assert {s.kind for s in half} == kinds
        assert {s.config.hardware.chip[0] in "vt" for s in half} == {True, False}
    assert len({s.name for s in scenarios()}) == len(scenarios())
    assert Counter(s.apart for s in scenarios())[True] >= 20


def test_a_step_without_axes_to_talk_on_has_no_collectives() -> None:
    found = scenario("healthy", "v4")
    alone = replace(found.config, mesh=Mesh((("data", 1),)))
    assert all(row.kernel is not None for row in simulate(alone, found.world).rows)


@pytest.mark.parametrize("name", ["link", "stream", "matmul", "attention"])
def test_better_hardware_is_never_slower(name: str) -> None:
    found = scenario("tensor axis too wide", "v5p")
    times = [simulate(found.config, replace(found.world, **{name: share})).step_s for share in (0.3, 0.6, 0.9)]
    assert times[0] > times[1] > times[2]


def test_a_slow_dimension_slows_the_axis_on_it_alone() -> None:
    found = scenario("tensor axis too wide", "v5p")
    world = World(slow_dim=2, slow=1 / 3, hidden_tensor=0.0, hidden_weights=0.0)
    one, other = with_mesh(found, data=16, model=4), with_mesh(found, data=64)
    bare = replace(world, slow_dim=-1)
    assert simulate(one.config, world).step_s > 1.1 * simulate(one.config, bare).step_s
    assert simulate(other.config, world).step_s < 1.1 * simulate(other.config, bare).step_s


def test_an_input_pipeline_beside_the_step_sets_the_pace() -> None:
    found = scenario("input bound", "v5p")
    assert found.world.prefetch
    assert min(found.times_s) == pytest.approx(found.baseline_s)


def test_scores_of_known_cases() -> None:
    gain = np.array([0.3, 0.1, -0.2])
    right = score(Priced(gain, np.full(3, 0.1)), gain)
    assert (right.spearman, right.regret, right.error, right.coverage) == pytest.approx((1.0, 0.0, 0.0, 1.0))
    reverse = score(Priced(-gain, np.full(3, 0.01)), gain)
    assert reverse.spearman < 0
    assert reverse.regret == pytest.approx(np.exp(0.5) - 1.0)  # the slowest is chosen
    assert reverse.coverage == 0


def test_a_tensor_axis_made_of_narrow_shards_becomes_wide() -> None:
    """Sixteen-way shards wait for activations; without the axis that waiting goes.  The gain is found within 20 %, and
    the order of the landscape as well as without the profile."""
    trial = Trial(scenario("tensor axis too wide", "v5p"))
    widest = [i for i, (mesh, _) in enumerate(trial.scenario.landscape) if mesh.size("model", "seq") == 1]
    prices = trial.calibration.price_workload(trial.candidates.work, trial.distance)
    for i in widest:
        assert np.log(prices.speedup[1 + i]) == pytest.approx(trial.gain[i], abs=0.18)
    assert trial.both().spearman >= trial.model_alone().spearman - 0.02
    assert trial.observation.parts_s["hbm:weights"] < 0.02 * trial.scenario.baseline_s


def test_a_profile_is_better_than_the_model_alone_and_than_its_parts_rescaled() -> None:
    """A few scenarios of the open half; the whole of both halves is in docs/accuracy-calibration.md."""
    chosen = [("tensor axis too wide", "v6e"), ("long sequence", "h100"), ("resharding", "v6e"), ("healthy", "v4"),
              ("tensor axis too wide", "v4"), ("slow links", "v5p")]  # fmt: skip
    trials = [Trial(scenario(*one)) for one in chosen]
    model, profile, both = ([getattr(t, name)() for t in trials] for name in ("model_alone", "profile_alone", "both"))
    for worse in (model, profile):
        assert np.mean([s.error for s in both]) < 1.03 * np.mean([s.error for s in worse])
        assert np.mean([s.spearman for s in both]) > np.mean([s.spearman for s in worse])
    assert max(s.regret for s in both) < 0.05


def test_the_model_is_not_the_world() -> None:
    """Otherwise a good score would mean nothing: steps differ by more than 10 % for half of the scenarios."""
    off = []
    for one in scenarios():
        if not one.apart:
            told = predict(one.config).step_time_s
            off.append(abs(np.log(told["estimate"] / one.baseline_s)) if told else 0.0)
    assert np.median(off) > 0.1


def test_profiles_are_recorded_alike_every_time() -> None:
    found = scenario("healthy", "v4")
    again = replace(found)
    assert found.profile == again.profile
