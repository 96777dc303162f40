from __future__ import annotations

import pytest

from history import moves
from history.likeness import WEIGHTS, Case
from history.record import Side
from history.services import store
from history.services.compare import difference
from history.services.similar import similar
from tests.history.records import record, side


def keys(found) -> list[str]:
    return [item.record.key for item in found]


@pytest.fixture
def stored(people):
    twin = record("twin")
    given = [
        twin,
        record("other way", before=side(data=16, seq=4), after=side()),
        record("other bottleneck", bottleneck="memory"),
        record("other chip", chip="h100", topology=(8, 64)),
        record("other model", model_name="mixtral-8x7b", model_family="mixtral"),
        record("other change", changes=("precision",), after=side(), title="fp8 instead of bf16", chip="h100",
               topology=(8, 64), bottleneck="compute", model_name="gpt3-175b", model_family="gpt"),
    ]  # fmt: skip
    store.add_many(given, people.team, None)
    store.add(record("foreign"), people.outsider.memberships.get().team)
    return people, store.add(record("case"), people.team)


def test_the_most_alike_record_is_first_and_says_why(stored):
    people, case = stored
    found = similar(people.team, case, k=10)
    assert keys(found)[0] == "twin" and "case" not in keys(found) and "foreign" not in keys(found)
    said = {part.name: part.text for part in found[0].parts}
    assert said["bottleneck"] == "the same bottleneck: communication"
    assert "seq smaller" in said["move"] and "data larger" in said["move"]
    assert said["hardware"] == "the same chip: v5p" and said["model"] == "the same model: llama3.1-8b"
    by_key = {item.record.key: item for item in found}
    assert all(by_key["twin"].score > item.score for key, item in by_key.items() if key != "twin")
    # What goes the other way or under another bottleneck is less of a precedent than what ran on other hardware.
    assert by_key["other chip"].score > by_key["other bottleneck"].score
    assert by_key["other chip"].score > by_key["other way"].score
    assert "move" not in {part.name for part in by_key["other way"].parts}


def test_likeness_is_the_sum_of_its_parts(stored):
    people, case = stored
    for item in similar(people.team, case, k=10):
        assert item.score == pytest.approx(sum(part.points for part in item.parts))
        assert 0 < item.score <= 1
        assert all(0 < part.points <= WEIGHTS[part.name] + 1e-9 for part in item.parts)
    assert sum(WEIGHTS.values()) == pytest.approx(1)


def test_a_case_that_is_not_stored_finds_its_like(stored):
    people, _ = stored
    case = Case(chip="h100", chips=512, bottleneck="communication", move={"data": 1.0, "seq": -1.0})
    assert keys(similar(people.team, case, k=1)) == ["other chip"]
    assert similar(people.team, Case(), k=3) == ()


def test_a_move_is_counted_by_role_over_both_networks():
    before = Side(mesh={"ici": {"mdl": 8, "fsdp": 4}, "dcn": {"data": 2}}, axis_roles={"mdl": "tensor"})
    after = Side(mesh={"ici": {"mdl": 4, "fsdp": 8}, "dcn": {"data": 2}}, axis_roles={"mdl": "tensor"})
    assert moves.role_sizes(before) == {"model": 8, "fsdp": 4, "data": 2}
    assert moves.role_sizes(before, fsdp_as_data=True) == {"model": 8, "data": 8}
    moved = moves.move(record("x", before=before, after=after))
    assert moved == {"model": -1.0, "fsdp": 1.0} and moves.signs(moved) == ["fsdp+", "model-"]
    assert moves.move(record("x", before=Side(), after=after)) == {}


def test_moves_the_same_way_align_and_opposite_ones_do_not():
    step, longer, back = {"data": 1.0, "seq": -1.0}, {"data": 2.0, "seq": -2.0}, {"data": -1.0, "seq": 1.0}
    assert moves.alignment(step, longer) == pytest.approx(1)
    assert moves.alignment(step, back) == pytest.approx(-1)
    assert moves.alignment(step, {"expert": 1.0}) == 0 == moves.alignment(step, {})


def test_both_sides_beside_each_other():
    value = record(
        "x",
        before=side(training={"remat": "full", "global_batch": 64},
                    kpis={"step_time_s": 12.0, "mfu": 0.4, "note": "a"}),
        after=side(data=16, seq=4, training={"remat": "full", "xla_flags": ["--a"]},
                   kpis={"step_time_s": 9.0, "mfu": 0.5, "mfu_convention": "6N"}),
    )  # fmt: skip
    found = difference(value)
    axes = {axis.axis: axis for axis in found.axes}
    assert [axis.axis for axis in found.axes] == ["model", "data", "seq"]
    assert (axes["data"].before, axes["data"].after, axes["data"].ratio) == (8, 16, 2.0)
    assert not axes["model"].changed and axes["seq"].ratio == 0.5
    assert (found.chips_before, found.chips_after) == (512, 512)
    training = {change.key: change for change in found.training}
    assert not training["remat"].changed
    assert training["global_batch"].after is None and not training["global_batch"].changed
    kpis = {kpi.key: kpi for kpi in found.kpis}
    assert kpis["step_time_s"].ratio == 0.75 and kpis["mfu"].difference == pytest.approx(0.1) and kpis["mfu"].share
    assert kpis["note"].ratio is None and kpis["mfu_convention"].before is None
    assert [kpi.key for kpi in found.kpis][:2] == ["step_time_s", "mfu"]


def test_a_side_without_a_mesh_is_not_a_mesh_of_one():
    found = difference(record("x", before=Side(), after=side()))
    assert {(axis.before, axis.ratio) for axis in found.axes} == {(None, None)}
    assert found.chips_before is None and found.chips_after == 512
