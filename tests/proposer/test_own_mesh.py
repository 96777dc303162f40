"""A mesh of the user's own: judged by the same rules, priced by the same model, never thrown at anyone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import LARGE, Scenario
from evaluation.steps.scenario import config as configured
from perfmodel.config import ConfigError
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.proposer import Pricer

RUN = Scenario(
    "", "", (), "v5p", (4, 8, 8), (("data", 32), ("seq", 1), ("model", 8)), LARGE, 512, 4096, remat="full"
)  # fmt: skip


@pytest.fixture(scope="module")
def pricer() -> Pricer:
    ran, setup = profiled(RUN), configured(RUN)
    return Pricer(ran, setup, diagnose(ran, setup))


def test_what_ran_is_priced_at_what_was_measured(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 32, "seq": 1, "model": 8}}))
    assert own.kind == "own" and not own.violations and own.changes == {}
    assert own.predicted.speedup == pytest.approx(1.0)
    assert own.predicted.step_time_s and own.predicted.step_time_s.estimate == pytest.approx(pricer.profile.step_time_s)
    assert all(row.before_s == pytest.approx(row.after_s) for row in own.communication)
    without_axes_of_one = pricer.evaluate(Candidate({"ici": {"data": 32, "model": 8}}))
    assert without_axes_of_one.confidence == own.confidence


def test_micro_batches_are_given_once(pricer: Pricer) -> None:
    """512 sequences on 32 shards: in micro-batches of 2 there are 8 of them, and a number says the same as a size."""
    sized = replace(pricer.config, training=replace(pricer.config.training, micro_batch=4))
    bench, mesh = Pricer(pricer.profile, sized, pricer.diagnosis), {"ici": {"data": 32, "model": 8}}
    assert bench.evaluate(Candidate(mesh, {"grad_accum": 8})).changes == {"micro_batch": 2}
    assert bench.evaluate(Candidate(mesh, {"grad_accum": 4})).changes == {}
    assert bench.evaluate(Candidate(mesh, {"micro_batch": 2, "grad_accum": 8})).changes == {"micro_batch": 2}
    with pytest.raises(ConfigError, match="in micro-batches of 2 are 8"):
        bench.evaluate(Candidate(mesh, {"micro_batch": 2, "grad_accum": 3}))


def test_without_a_step_time_nothing_is_said_in_seconds(pricer: Pricer) -> None:
    ran = replace(
        pricer.profile, step_time_s=None, step_time_min_s=None, step_time_max_s=None, step_time_stdev_s=None, steps=()
    )
    untimed = Pricer(ran, pricer.config, diagnose(ran, pricer.config))
    plan = untimed.propose(Constraints())
    own = untimed.evaluate(Candidate({"ici": {"data": 64, "model": 4}}))
    seconds = re.compile(r"\d\s?(?:s|ms|µs)\b")
    for item in (*plan.proposals, own):
        assert item.predicted.step_time_s is None
        assert all((row.before_s, row.after_s) == (None, None) for row in item.communication)
        assert any((row.after_share or 0.0) > 0.0 for row in item.communication)
        for line in (*item.reasoning, *item.expected_impact, *item.trade_offs, *item.raises, *item.lowers):
            assert not seconds.search(line), line
    assert all("time_s" not in part for part in plan.observed.values())


def test_a_rule_that_breaks_is_named_and_the_time_comes_all_the_same(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 16, "model": 16}}))
    assert [item.rule for item in own.violations] == ["kv_heads"]
    assert "8 KV heads" in own.violations[0].reason
    assert own.confidence == 0.0
    assert own.predicted.speedup is not None
    assert "8 KV heads" in own.reasoning[0]


def test_a_mesh_of_other_chips_is_a_rule_and_has_no_time(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 32, "model": 4}}))
    assert [item.rule for item in own.violations] == ["chips"]
    assert own.predicted.step_time_s is None and own.confidence == 0.0


def test_too_much_memory_is_a_rule_with_the_bytes(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 256}}, {"remat": "none", "weight_sharding": "none"}))
    assert "memory" in [item.rule for item in own.violations]
    assert own.memory_headroom_bytes is not None and own.memory_headroom_bytes < 0


def test_the_users_constraints_are_checked_too(pricer: Pricer) -> None:
    asked = Constraints(keep_axes=("model",), keep_batch=True)
    own = pricer.evaluate(Candidate({"ici": {"data": 64, "model": 4}}), asked)
    assert [item.rule for item in own.violations] == ["your constraint: keep model"]
    assert own.confidence > 0.0


@pytest.mark.parametrize(
    ("mesh", "changes", "what"),
    [
        ({}, {}, "mesh.ici: is missing"),
        ({"ici": {"data": 0}}, {}, "mesh.ici.data: is 0"),
        ({"ici": {"data": 2.5}}, {}, "mesh.ici.data: must be a whole number, not 2.5"),
        ({"ici": {"datum": 256}}, {}, "mesh.ici.datum: is not a known role"),
        ({"ici": {"data": 256}, "odd": {}}, {}, "mesh.odd: is not known"),
        ({"ici": {"data": 256}}, {"remat": "some"}, "training.remat: is 'some'"),
        ({"ici": {"data": 256}}, {"batch": 4}, "training.batch: is not a training key"),
        ({"ici": {"data": 256}}, {"global_batch": -1}, "training.global_batch: is -1"),
    ],
)
def test_nonsense_is_one_sentence(pricer: Pricer, mesh: Any, changes: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        pricer.evaluate(Candidate(mesh, changes))


def test_sensitivity_halves_and_doubles_every_axis_and_the_batch(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 32, "seq": 1, "model": 8}}))
    steps = {step.step: step for step in own.sensitivity}
    assert {"data 32 → 64, model 8 → 4", "seq 1 → 2, data 32 → 16", "global batch 512 → 1024"} <= set(steps)
    assert {"model 8 → 16, data 32 → 16", "global batch 512 → 256", "remat policy full → minimal"} <= set(steps)
    assert steps["model 8 → 16, data 32 → 16"].rule == "kv_heads"
    bigger = steps["global batch 512 → 1024"]
    assert own.predicted.hbm_per_chip_bytes and (bigger.memory_bytes or 0) > own.predicted.hbm_per_chip_bytes.total
    assert bigger.changes == {"global_batch": 1024}


def test_communication_says_what_moves_and_where(pricer: Pricer) -> None:
    own = pricer.evaluate(Candidate({"ici": {"data": 256}}))
    rows = {row.moves: row for row in own.communication}
    assert rows["activations"].axes == ("model",) and rows["activations"].after_s == 0.0
    assert rows["activations"].before_s > 0.0
    assert rows["weights and gradients"].after_s > rows["weights and gradients"].before_s
