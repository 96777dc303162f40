from __future__ import annotations

from dataclasses import replace

import pytest

from history import moves
from history.case import Case, case_of
from history.models import HistoryRecord
from history.presentation import Flags, flags, lines
from history.record import Side
from history.services import search, store
from history.services.similar import cases_of_rows, similar
from history.similarity import BOUND
from tests.history.records import record, side


def keys(found) -> list[str]:
    return [item.record.key for item in found]


TRAINING = {"global_batch": 512, "seq_len": 4096}
SIZED = {"parameters": 8e9, "before": side(training=TRAINING), "after": side(data=16, seq=4, training=TRAINING)}


@pytest.fixture
def stored(people):
    given = [
        record("twin", **SIZED),
        record("other way", **{**SIZED, "before": SIZED["after"], "after": SIZED["before"]}),
        record("other bottleneck", bottleneck="memory", **SIZED),
        record("other chip", chip="v5e", topology=(16, 32), **SIZED),
        record("gpu", chip="h100", topology=(8, 64), **SIZED),
        record("cpu", chip="", topology=(), **SIZED),
        record("far larger", **{**SIZED, "parameters": 8e15}),
        record("unsized", **{**SIZED, "parameters": None, "before": side()}),
        record("kernel", changes=("kernel",), **{**SIZED, "after": SIZED["before"]}),
        record("other change", changes=("precision",), title="fp8 instead of bf16", parameters=8e9,
               before=side(training={**TRAINING, "precision": "bf16"}),
               after=side(training={**TRAINING, "precision": "fp8"})),
    ]  # fmt: skip
    store.add_many(given, people.team, None)
    store.add(record("foreign", **SIZED), people.outsider.memberships.get().team)
    return people, store.add(record("case", **SIZED), people.team)


def test_the_most_alike_record_is_first_and_says_why(stored):
    people, case = stored
    found = similar(people.team, case, k=10)
    assert sorted(keys(found[:2])) == ["other bottleneck", "twin"]  # the step is the same, whatever it was called
    assert keys(found[2:]) == []  # of a chip whose links are slower other terms move
    assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
    assert found[0].reason == found[1].reason == "the same run and change"


def test_nothing_is_shown_below_the_bound(stored):
    """Of GPUs for a TPU, of CPU devices, of another move, of an unknown model, of a kernel: not even where there is
    nothing else."""
    people, case = stored
    HistoryRecord.objects.filter(key__in=["twin", "other bottleneck", "other chip"]).delete()
    assert similar(people.team, case, k=10) == ()
    assert all(item.score >= BOUND for item in similar(people.team, HistoryRecord.objects.get(key="gpu"), k=10))


def test_a_case_that_is_not_stored_finds_its_like_with_what_it_lets_expect(stored):
    """A run without a proposal: what it would gain of the record's change."""
    people, stored_case = stored
    value = store.to_record(stored_case)
    run = case_of(value).before
    case = Case(chip="v5p", chips=512, batch=512, seq_len=4096, roles={"model": 8, "data": 8, "seq": 8}, before=run)
    found = similar(people.team, case, k=1)[0]
    assert found.record.key in ("twin", "case", "other bottleneck")
    assert found.expected.low80 < 1.2 < found.expected.high80
    assert found.expected.speedup == pytest.approx(1.2)
    assert similar(people.team, Case(), k=3) == ()


def test_what_a_record_is_known_by_follows_its_next_version(stored):
    _, case = stored
    before = cases_of_rows([case])[0]
    case.after, case.version = {**case.after, "mesh": case.before["mesh"]}, case.version + 1
    assert before.move and not cases_of_rows([case])[0].move


def test_a_move_is_counted_by_role_over_both_networks():
    before = Side(mesh={"ici": {"mdl": 8, "fsdp": 4}, "dcn": {"data": 2}}, axis_roles={"mdl": "tensor"})
    after = Side(mesh={"ici": {"mdl": 4, "fsdp": 8}, "dcn": {"data": 2}}, axis_roles={"mdl": "tensor"})
    assert moves.role_sizes(before) == {"model": 8, "fsdp": 4, "data": 2}
    assert moves.role_sizes(before, fsdp_as_data=True) == {"model": 8, "data": 8}
    moved = moves.move(record("x", before=before, after=after))
    assert moved == {"model": -1.0, "fsdp": 1.0} and moves.signs(moved) == ["fsdp+", "model-"]
    assert moves.move(record("x", before=Side(), after=after)) == {}


def test_both_sides_beside_each_other():
    value = record(
        "x",
        before=side(training={"remat": "full", "global_batch": 64},
                    kpis={"step_time_s": 12.0, "mfu": 0.4, "note": "a"}),
        after=side(data=16, seq=4, training={"remat": "full", "xla_flags": ["--a"]},
                   kpis={"step_time_s": 9.0, "mfu": 0.5, "mfu_convention": "6N"}),
    )  # fmt: skip
    found = {line.label: line for line in lines(value)}
    assert list(found)[:3] == ["model", "data", "seq"]
    assert (found["data"].before, found["data"].after, found["data"].change) == ("8", "16", "×2")
    assert not found["model"].differs and found["seq"].change == "÷2"
    assert not found["Remat"].differs and not found["Global batch"].differs and found["Global batch"].after == "–"
    assert "25" in found["Step time"].change and found["Step time"].good
    assert found["MFU"].change.startswith("+10") and found["MFU"].change.endswith("pt")
    assert not found["Note"].change and found["FLOPs convention"].before == "–"
    assert flags(value) == Flags(0, (), ("--a",))


def test_a_side_without_a_mesh_is_not_a_mesh_of_one():
    shown = lines(record("x", before=Side(), after=side()))
    assert {(line.before, line.differs) for line in shown} == {("not given", False)}


def test_no_record_of_another_team_is_seen(stored):
    """Whatever a team asks for: by likeness, by id, or as precedents of a run."""
    people, case = stored
    other = people.outsider.memberships.get().team
    store.add(record("twin", title="The other team's twin", **SIZED), other)
    theirs = set(HistoryRecord.objects.filter(team=other).values_list("pk", flat=True))
    ran = cases_of_rows([case])[0]
    found = [item.record.pk for to in (case, replace(ran, move={})) for item in similar(people.team, to, k=50)]
    assert found and not theirs & set(found)
    assert search.of_key(people.team, "foreign") is None
    assert search.of_key(people.team, "twin").team_id == people.team.pk
