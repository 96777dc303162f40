"""User constraints: read strictly, said in sentences, obeyed by every proposal."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.analyzer import diagnose
from evaluation.proposing.experiments import case
from perfmodel.config import ConfigError
from proposals.constraints import Constraints
from proposals.plan import Plan
from proposals.proposer import Pricer
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, config, profile_of

FULL: dict[str, Any] = {
    "keep_batch": True,
    "keep_axes": ["model"],
    "fixed": {"seq": 1},
    "at_least": {"data": 2},
    "at_most": {"data": 8},
    "memory_margin": 0.1,
    "keep_remat": True,
    "no_flags": True,
    "excluded": [{"ici": {"data": 16}}],
}


def pricer(**training: Any) -> Pricer:
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    setup = config({"data": 4, "seq": 1, "model": 4}, **training)
    return Pricer(ran, setup, diagnose(ran, setup))


def test_constraints_survive_the_round_trip_and_each_is_a_sentence() -> None:
    asked = Constraints.from_json(FULL)
    assert asked.to_json() == FULL
    assert Constraints().to_json() == {} and not Constraints()
    said = asked.describe()
    assert len(said) == len(FULL)
    assert all(text.endswith(".") for text in said)
    assert "10 % of usable memory" in " ".join(said)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"keep_batch": 1}, "constraints.keep_batch: must be true or false"),
        ({"keep_batches": True}, "constraints.keep_batches: is unknown"),
        ({"keep_axes": "model"}, "constraints.keep_axes: must be a list"),
        ({"fixed": {"model": 0}}, "constraints.fixed.model: is 0; give a whole number of at least 1"),
        ({"fixed": {"model": True}}, "constraints.fixed.model: must be a whole number"),
        ({"memory_margin": 0.7}, "constraints.memory_margin: is 0.7"),
        ({"memory_margin": float("nan")}, "constraints.memory_margin: is nan; give a finite number"),
        ({"excluded": [{"data": {"data": 4}}]}, "constraints.excluded: must be a mesh"),
        ([], "constraints: must be a mapping"),
    ],
)
def test_nonsense_is_one_sentence_that_names_the_key(data: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Constraints.from_json(data)


@pytest.mark.parametrize(
    "asked",
    [
        Constraints(keep_axes=("modle",)),
        Constraints(at_least={"data": 8}, at_most={"data": 4}),
        Constraints(fixed={"data": 16}, at_most={"data": 4}),
    ],
)
def test_constraints_that_cannot_be_meant_are_refused(asked: Constraints) -> None:
    with pytest.raises(ConfigError, match="constraints"):
        pricer().propose(asked)


def meshes(found: Plan) -> list[dict[str, int]]:
    return [item.mesh["ici"] for item in found.proposals]


def test_an_axis_that_must_not_be_touched_keeps_its_size() -> None:
    free = pricer().propose()
    assert free.proposals[0].mesh["ici"]["model"] != 4
    held = pricer().propose(Constraints(keep_axes=("model",)))
    assert {mesh.get("model", 1) for mesh in meshes(held)} == {4}
    left_out = {item.rule: item.reason for item in held.rejected}
    assert "the model axis unchanged" in left_out["your constraint: keep model"]
    assert held.constraints == {"keep_axes": ["model"]}


def test_a_role_names_its_axis_whatever_the_user_calls_it() -> None:
    held = pricer().propose(Constraints(keep_axes=("tensor",)))
    assert {mesh.get("model", 1) for mesh in meshes(held)} == {4}


def test_an_excluded_mesh_does_not_come_back() -> None:
    first = pricer().propose().proposals[0].mesh
    other = pricer().propose(Constraints(excluded=(first,)))
    assert first["ici"] not in meshes(other)


def test_memory_that_must_stay_free_stays_free() -> None:
    bench = pricer(remat="full")
    free = bench.propose().proposals[0].predicted.hbm_per_chip_bytes
    tight = bench.propose(Constraints(memory_margin=0.5))
    for item in tight.proposals:
        used = item.predicted.hbm_per_chip_bytes
        assert used and used.total <= 0.5 * used.capacity
    assert free and free.total > 0


def test_a_margin_that_nobody_can_check_says_so() -> None:
    ran, setup = case(2)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose(Constraints(memory_margin=0.1))
    assert any("could not be checked" in text for text in found.notes)


def test_what_breaks_a_constraint_is_not_proposed_though_it_is_the_current_configuration() -> None:
    bench = pricer(model=None, seq_len=None)
    tight = Constraints(
        at_most={"model": 2}, no_flags=True, keep_remat=True, keep_weight_sharding=True, keep_batch=True,
        keep_micro_batches=True,
    )  # fmt: skip
    for asked in (Constraints(at_most={"model": 2}, no_flags=True), tight):
        found = bench.propose(asked).proposals
        assert found and all(item.mesh["ici"]["model"] <= 2 and item.kind != "keep" for item in found)


def test_constraints_that_leave_too_little_are_one_sentence() -> None:
    asked = Constraints(
        keep_batch=True, keep_axes=("data", "seq", "model"), keep_remat=True, no_flags=True,
        keep_weight_sharding=True, keep_micro_batches=True,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="no other configuration satisfies them"):
        pricer().propose(asked)
