"""No more than so many chips: the same run on a smaller slice, compared by what each chip gets done."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from diagnosis.analyzer import diagnose
from evaluation.proposing.experiments import case
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import MIDDLE, Scenario
from evaluation.steps.scenario import config as configured
from perfmodel import legality
from perfmodel.config import ConfigError, Hardware
from perfmodel.prediction import predict
from proposals.candidate import Candidate, candidate
from proposals.constraints import Constraints
from proposals.models import Proposal
from proposals.presentation import changed_settings, kind_words
from proposals.proposer import Pricer
from proposals.proposer.limits import smaller

RUN = Scenario(
    "", "", (), "v5p", (4, 4, 4), (("data", 16), ("seq", 1), ("model", 4)), MIDDLE, 256, 4096, remat="full"
)  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "chips", "topology", "slices"),
    [
        (Hardware("v5e", (16, 16), 4), 600, (16, 16), 2),
        (Hardware("v5e", (16, 16), 4), 256, (16, 16), 1),
        (Hardware("v5e", (16, 16), 4), 130, (8, 16), 1),
        (Hardware("v5p", (4, 4, 8)), 64, (4, 4, 4), 1),
    ],
)
def test_slices_go_first_then_the_largest_dimensions(
    hardware: Hardware, chips: int, topology: tuple[int, ...], slices: int
) -> None:
    found = smaller(hardware, chips)
    assert found is not None
    assert (found.topology, found.slices) == (topology, slices)


def test_half_the_chips_take_about_twice_as_long_and_every_rule_holds() -> None:
    ran, setup = profiled(RUN), configured(RUN)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose(Constraints(at_most_chips=40))
    # Each chip holds twice the states, so that the measured peak says less of whether more than this one fits.
    assert len({(str(p.mesh), str(p.changes)) for p in found.proposals}) == len(found.proposals) >= 1
    assert not any("slower" in note for note in found.notes)  # as was asked for: what they gain is per chip
    for item in found.proposals:
        proposed = candidate(setup, item)
        assert proposed.hardware.chips == prod(item.changes["topology"]) == 32
        assert not legality.check(proposed) and predict(proposed).fits
        assert 0.35 < (item.predicted.speedup or 0.0) < 0.9
        assert item.predicted.step_time_s and item.predicted.step_time_s.estimate == pytest.approx(
            (ran.step_time_s or 0.0) / (item.predicted.speedup or 1.0), rel=1e-6
        )


def test_sentences_and_settings_tell_both_speed_ups_and_the_chips_before() -> None:
    ran, setup = profiled(RUN), configured(RUN)
    item = Pricer(ran, setup, diagnose(ran, setup)).propose(Constraints(at_most_chips=32)).proposals[0]
    assert item.predicted.speedup is not None
    assert f"; {item.predicted.speedup * 2:.2f}× per token and chip." in item.expected_impact[0]
    shown = changed_settings({"hardware": {"topology": [4, 4, 4], "slices": 1}}, item)
    assert [row for row in shown if row[0] in ("topology", "slices")] == [("topology", "4×4×4", "2×4×4")]


def test_a_setting_that_nobody_gave_is_shown_with_its_default() -> None:
    config = {"hardware": {"chip": "h100", "topology": [8, 1]}, "mesh": {"ici": {"data": 8}}}
    mesh, change = {"ici": {"data": 8}}, {"weight_sharding": "fsdp"}
    assert changed_settings(config, Candidate(mesh, change)) == [("weight_sharding", "zero1 (default)", "fsdp")]
    given = config | {"training": {"weight_sharding": "none"}}
    assert changed_settings(given, Candidate(mesh, change)) == [("weight_sharding", "none", "fsdp")]


@pytest.mark.parametrize(
    ("changes", "per"),
    [
        ({"slices": 1}, "per token and chip"),
        ({"topology": [2, 4, 4]}, "per token and chip"),
        ({"remat": "none"}, "per token"),
    ],
)
def test_on_another_part_of_the_machine_a_gain_counts_per_chip(changes: dict[str, object], per: str) -> None:
    assert Proposal(data={"changes": changes}).per == per


def test_an_alternative_is_named_by_what_it_changes() -> None:
    assert kind_words("alternative", {"global_batch": 16}, True) == "Different batch"
    assert kind_words("alternative", {"remat": "none"}, False) == "Same mesh"
    assert kind_words("alternative", {}, True) == "Alternative"
    assert kind_words("safer", {"remat": "none"}, False) == "Lower risk"
    assert kind_words("alternative", {"global_batch": 16}, True, slower=True) == "Predicted slower"


def test_the_same_mesh_with_half_the_data_axis_does_the_same_on_each_chip() -> None:
    """Half the chips at half the batch: what a chip computes on does not change, so neither does its compute."""
    ran, setup = profiled(RUN), configured(RUN)
    bench = Pricer(ran, setup, diagnose(ran, setup))
    fewer = Candidate({"ici": {"data": 8, "seq": 1, "model": 4}}, {"topology": [2, 4, 4], "global_batch": 128})
    own = bench.evaluate(fewer)
    now = bench.evaluate(Candidate({"ici": {"data": 16, "seq": 1, "model": 4}}))
    before, after = now.predicted.breakdown_s, own.predicted.breakdown_s
    assert after["compute"] == pytest.approx(before["compute"], rel=0.01)
    assert own.predicted.speedup == pytest.approx(0.5, rel=0.05)


def test_what_runs_on_more_chips_breaks_the_constraint_and_says_so() -> None:
    ran, setup = case(3)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose(Constraints(at_most_chips=2))
    for item in found.proposals:
        if item.kind == "keep":
            assert [rule.rule for rule in item.violations] == ["your constraint: at most 2 chips"]
        else:
            assert candidate(setup, item).hardware.chips <= 2


def test_chips_that_cannot_be_halved_so_far_are_one_sentence() -> None:
    ran, setup = case(2)
    odd = replace(
        setup, hardware=replace(setup.hardware, topology=(15,)), mesh=replace(setup.mesh, ici=(("data", 15),))
    )
    with pytest.raises(ConfigError, match="at_most_chips"):
        Pricer(ran, odd, diagnose(ran, odd)).propose(Constraints(at_most_chips=4))
