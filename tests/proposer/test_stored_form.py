"""What is stored of a plan is read back as the value it was, whichever version stored it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.analyzer import diagnose
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import MIDDLE, Scenario
from evaluation.steps.scenario import config as configured
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.models import Proposal
from proposals.plan import PLAN, PROPOSAL, Memory, Neighbour, Predicted, ProposalPlan, Range
from proposals.presentation import changed_settings, kind_words
from proposals.proposer import Pricer

RUN = Scenario(
    "", "", (), "v5p", (4, 4, 4), (("data", 16), ("seq", 1), ("model", 4)), MIDDLE, 256, 4096, remat="full"
)  # fmt: skip
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SIZES = st.dictionaries(st.text(max_size=8), st.integers(1, 4096), max_size=4)
MESHES = st.fixed_dictionaries({"ici": SIZES, "dcn": SIZES})
CHANGES = st.dictionaries(
    st.text(max_size=8), st.integers() | st.text(max_size=8) | st.booleans() | st.lists(st.text(max_size=8)), max_size=3
)
RANGES = st.builds(Range, lower=st.none() | NUMBERS, estimate=NUMBERS, low80=NUMBERS, high80=NUMBERS)
PREDICTED = st.builds(
    Predicted,
    step_time_s=st.none() | RANGES,
    hbm_per_chip_bytes=st.none() | st.builds(Memory, activations=st.none() | NUMBERS, total=NUMBERS, capacity=NUMBERS),
    speedup=st.none() | NUMBERS,
    breakdown_s=st.dictionaries(st.text(max_size=8), NUMBERS),
    missing=st.lists(st.text(max_size=8)).map(tuple),
)
NEIGHBOURS = st.builds(
    Neighbour, mesh=MESHES, changes=CHANGES, step_time_s=st.none() | RANGES, relative=st.none() | NUMBERS
)
PROPOSALS = st.builds(
    ProposalPlan, mesh=MESHES, changes=CHANGES, predicted=PREDICTED, confidence=NUMBERS, doublings=NUMBERS,
    sensitivity=st.lists(NEIGHBOURS, max_size=2).map(tuple),
)  # fmt: skip

#: A proposal as the first version of the product stored it: without what later versions say beside it.
FIRST: dict[str, Any] = {
    "rank": 2,
    "kind": "safer",
    "title": "data 4 → 8",
    "mesh": {"ici": {"seq": 2, "data": 8}, "dcn": {"data": 1}},
    "changes": {"remat": "minimal", "xla_flags": ["--a"]},
    "predicted": {"step_time_s": {"estimate": 2.5, "low80": 2.0, "high80": 3.0}, "speedup": 1.2, "missing": ["model"]},
    "confidence": 0.7,
    "reasoning": ["All-gathers take 41.6 % of the step."],
    "expected_impact": [],
    "trade_offs": ["More memory."],
    "citations": [{"source": "book", "section": "3.2", "title": "Sharding", "statement": "", "url": ""}],
    "raises": [],
    "lowers": ["The model is not known."],
    "findings": ["exposed_collectives"],
}


def through_json(data: object) -> Any:
    return json.loads(json.dumps(data, ensure_ascii=False))


@given(PROPOSALS)
def test_a_proposal_is_read_back_as_it_was_written(proposal: ProposalPlan) -> None:
    assert PROPOSAL.read(through_json(PROPOSAL.write(proposal))) == proposal


@pytest.mark.parametrize("asked", [Constraints(), Constraints(keep_batch=True, excluded=({"ici": {"data": 16}},))])
def test_a_plan_is_read_back_as_it_was_written(asked: Constraints) -> None:
    ran, setup = profiled(RUN), configured(RUN)
    plan = Pricer(ran, setup, diagnose(ran, setup)).propose(asked)
    again = PLAN.read(through_json(PLAN.write(plan)))
    assert again == plan
    for before, after in zip(plan.proposals, again.proposals, strict=True):
        assert list(after.mesh["ici"]) == list(before.mesh["ici"]), "the order of the axes is the layout on the chips"


def test_what_the_first_version_stored_is_read() -> None:
    found = PROPOSAL.read(FIRST)
    assert (found.rank, found.changes["remat"], found.predicted.speedup) == (2, "minimal", 1.2)
    assert list(found.mesh["ici"].items()) == [("seq", 2), ("data", 8)]
    assert found.predicted.missing == ("model",)
    assert PROPOSAL.write(found)["predicted"]["step_time_s"] == FIRST["predicted"]["step_time_s"]
    assert (found.sensitivity, found.violations, found.support, found.predicted.sigma) == ((), (), "", None)
    plan = PLAN.read({"baseline": FIRST["predicted"], "proposals": [FIRST], "rejected": [], "considered": 7})
    assert (plan.proposals, plan.considered, plan.basis, plan.notes) == ((found,), 7, "profile", ())


def test_a_stored_time_or_memory_that_lacks_a_number_is_not_known_rather_than_0() -> None:
    predicted = {"step_time_s": {"estimate": 2.5}, "hbm_per_chip_bytes": {"params": 2e9, "total": 3e9}}
    found = PROPOSAL.read({**FIRST, "predicted": predicted}).predicted
    assert found.step_time_s is None and found.hbm_per_chip_bytes is None


def test_a_key_that_is_not_known_any_more_is_left_out() -> None:
    assert PROPOSAL.read({**FIRST, "role": "x", "predicted": {**FIRST["predicted"], "cost": 1}}) == PROPOSAL.read(FIRST)


def test_what_is_no_proposal_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(ValueError, match=r"mesh\.ici\.data"):
        PROPOSAL.read({**FIRST, "mesh": {"ici": {"data": "many"}}})


def test_a_plan_on_fewer_chips_stays_readable() -> None:
    """Proposals took fewer chips once; their rows and the constraints that asked for them are still there."""
    change = {"topology": [2, 4, 4]}
    assert Proposal(data={"changes": change}).per == "per token and chip"
    ran = {"hardware": {"topology": [4, 4, 4], "slices": 1}}
    assert changed_settings(ran, Candidate({"ici": {}}, change)) == [("topology", "4×4×4", "2×4×4")]
    assert Constraints.from_json({"at_most_chips": 8, "keep_batch": True}) == Constraints(keep_batch=True)


def test_a_setting_that_nobody_gave_is_shown_with_its_default() -> None:
    config = {"hardware": {"chip": "h100", "topology": [8, 1]}, "mesh": {"ici": {"data": 8}}}
    mesh, change = {"ici": {"data": 8}}, {"weight_sharding": "fsdp"}
    assert changed_settings(config, Candidate(mesh, change)) == [("weight_sharding", "zero1 (default)", "fsdp")]
    given = config | {"training": {"weight_sharding": "none"}}
    assert changed_settings(given, Candidate(mesh, change)) == [("weight_sharding", "none", "fsdp")]


def test_an_alternative_is_named_by_what_it_changes() -> None:
    assert kind_words("alternative", {"global_batch": 16}, True) == "Different batch"
    assert kind_words("alternative", {"remat": "none"}, False) == "Same mesh"
    assert kind_words("alternative", {}, True) == "Alternative"
    assert kind_words("safer", {"remat": "none"}, False) == "Lower risk"
    assert kind_words("alternative", {"global_batch": 16}, True, slower=True) == "Predicted slower"
