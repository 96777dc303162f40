from __future__ import annotations

import dataclasses

import pytest

from diagnosis import services
from diagnosis.models import DiagnosisRecord, OpRow
from experiments.services import runs
from tests.backend.factories import diagnosis, make_experiment, step_profile


@pytest.fixture
def record(people):
    run = runs.newest(make_experiment(people))
    value = step_profile(300)
    return services.store(run, diagnosis(value))


def test_the_diagnosis_comes_back_as_the_contract(record):
    data = services.contract(record)
    assert data["bottleneck"]["primary"] == "communication"
    assert data["kpis"] == {"step_time_s": 1.25, "duty_cycle": 0.9, "mfu": None}
    assert len(data["top_ops"]) == 20
    assert [op["mesh_axis"] for op in data["top_ops"][:3]] == [None, "model", ["data", "seq"]]
    assert len(services.contract(record, top=5)["top_ops"]) == 5
    record.run.experiment.refresh_from_db()
    assert record.run.experiment.bottleneck == "communication"


def test_a_run_has_one_diagnosis_however_often_it_is_stored(record):
    value = step_profile(4)
    again = services.store(record.run, diagnosis(value))
    assert DiagnosisRecord.objects.get() == again
    assert OpRow.objects.count() == 4


def test_ops_are_paged_sorted_and_filtered_on_the_server(record):
    first = services.ops(record)
    assert (first.paginator.count, first.paginator.num_pages, len(first), first.number) == (300, 6, 50, 1)
    last = services.ops(record, page=99)
    assert (last.number, last.end_index()) == (6, 300)
    assert services.ops(record, page="x").number == services.ops(record, page=None).number == 1
    only = services.ops(record, {"mesh_axis": "data, seq"}, size=500)
    assert len(only) == 100
    assert {tuple(row.data["mesh_axis"]) for row in only} == {("data", "seq")}
    found = services.ops(record, {"q": "LAYER_299/"})
    assert [row.name for row in found] == ["fusion.299"]
    both = services.ops(record, {"bound_by": "Compute", "resource": "ici", "nonsense": "x"})
    assert all(row.bound_by == "Compute" and row.resource == "ici" for row in both)


@pytest.mark.parametrize("sort", ["name", "-name", "roofline_efficiency", "-roofline_efficiency", "nonsense", ""])
def test_every_op_appears_once_over_all_pages_and_unmeasured_ones_last(record, sort):
    rows = [row for number in range(1, 7) for row in services.ops(record, {"sort": sort}, number)]
    assert len({row.pk for row in rows}) == 300
    if "roofline" in sort:
        measured = [row.roofline_efficiency is not None for row in rows]
        assert measured == sorted(measured, reverse=True)


def test_a_page_of_20000_ops_costs_two_queries(people, django_assert_num_queries):
    run = runs.newest(make_experiment(people))
    value = step_profile(20_000)
    record = services.store(run, diagnosis(value))
    with django_assert_num_queries(2):
        page = services.ops(record, {"category": "all-gather", "sort": "-time_share"}, 100)
        assert (page.paginator.count, len(page)) == (6667, 50)


def test_hostile_text_in_op_names_is_stored_as_text(people):
    run = runs.newest(make_experiment(people))
    value = step_profile(1)
    evil = "<script>alert(1)</script>\x00\udcff\\.\t\n%s{{ 7*7 }}"
    op = dataclasses.replace(value.ops[0], name=evil, hlo=evil)
    value = dataclasses.replace(value, ops=(op,))
    record = services.store(run, diagnosis(value))
    row = services.ops(record)[0]
    assert row.name.startswith("<script>alert(1)</script>")
    assert "\x00" not in row.data["hlo"]
    assert row.data["hlo"].endswith("\\.\t\n%s{{ 7*7 }}")


@pytest.mark.parametrize("q", ["%", "_", "\\", "\x00", "'; drop table x; --", "\udcff"])
def test_a_search_text_is_no_pattern_and_no_sql(record, q):
    assert not services.ops(record, {"q": q, "category": q})


def test_numbers_that_json_has_no_word_for_become_none(people):
    run = runs.newest(make_experiment(people))
    value = step_profile(1)
    found = dataclasses.replace(diagnosis(value), kpis={"step_time_s": 1.25, "mfu": float("nan")})
    assert services.store(run, found).data["kpis"]["mfu"] is None
