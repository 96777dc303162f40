"""The list of experiments: what its rows know, selections, saved views, the series of step times, the table as CSV."""

from __future__ import annotations

import csv
import random

import pytest

from asapweb import run_list
from experiments.models import Experiment, SavedView
from tests.backend.factories import make_experiment, make_ready


def series(*levels: tuple[int, float], noise: float, seed: int = 7) -> list[float]:
    rng = random.Random(seed)
    return [step * rng.gauss(1.0, noise) for runs, step in levels for _ in range(runs)]


@pytest.mark.parametrize("seed", range(20))
def test_changes_of_a_level_are_found_where_they_are(seed: int) -> None:
    """Levels as a libtpu release, its withdrawal and an approved proposal moved them: +6.1 %, −6.3 %, 2.1×."""
    times = series((10, 1.433), (8, 1.520), (4, 1.424), (6, 0.664), noise=0.004, seed=seed)
    assert run_list.changes(times) == [10, 18, 22]


@pytest.mark.parametrize("noise", [0.0, 0.004, 0.03, 0.1])
def test_noise_alone_is_seldom_a_change(noise: float) -> None:
    found = [run_list.changes(series((40, 2.0), noise=noise, seed=seed)) for seed in range(100)]
    assert sum(map(bool, found)) <= 5


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 1.0], [1.0, 2.0]])
def test_few_runs_are_no_error(times: list[float]) -> None:
    assert run_list.changes(times) in ([], [1])


@pytest.mark.slow
def test_rows_state_what_the_newest_diagnosis_found(people) -> None:
    stored = make_ready(people)
    (row,) = run_list.rows([stored.experiment])
    diagnosis = stored.run.diagnosis.value
    assert row.mfu == diagnosis.kpis["mfu"] and row.profile == stored.run.profile_id
    total = sum(diagnosis.breakdown_share.values()) * (row.item.step_time_s or 1.0)
    assert row.total == pytest.approx(total, rel=1e-5)


@pytest.mark.slow
def test_two_selected_are_compared_and_more_are_listed(people) -> None:
    client = people.client("engineer")
    one, two = make_ready(people, "one"), make_ready(people, "two")
    pair = client.get("/experiments/picked/", {"pick": [one.experiment.pk, two.experiment.pk]})
    assert pair["Location"] == f"/compare/?a={one.run.profile_id}&b={two.run.profile_id}"
    three = [*(each.experiment.pk for each in (one, two)), make_experiment(people, "three").pk]
    make_experiment(people, "not selected")
    page = client.get("/experiments/picked/", {"pick": three}, follow=True)
    assert {row.item.pk for row in page.context["rows"]} == set(three)


@pytest.mark.slow
def test_a_saved_view_is_the_teams_and_only_its(people) -> None:
    client = people.client("engineer")
    make_experiment(people, "fsdp run")
    answer = client.post("/experiments/views/", {"name": "fsdp", "view": "q=fsdp&col=step&col=mfu&page=3&evil=1"})
    assert answer["Location"] == "/experiments/?q=fsdp&col=step&col=mfu"
    page = client.get(answer["Location"])
    assert [key for key, *_ in page.context["columns"]] == ["step", "mfu"]
    (saved,) = page.context["views"]
    assert not people.client("outsider").get("/experiments/").context["views"]
    people.client("outsider").post(f"/experiments/views/{saved.pk}/delete/")
    assert people.client("viewer").post(f"/experiments/views/{saved.pk}/delete/").status_code == 403
    assert SavedView.objects.filter(pk=saved.pk).exists()
    client.post(f"/experiments/views/{saved.pk}/delete/")
    assert not SavedView.objects.exists()


@pytest.mark.slow
def test_the_table_holds_the_whole_list_and_runs_no_formula(people) -> None:
    stored = make_ready(people, "=HYPERLINK(1)")
    for number in range(30):
        make_experiment(people, f"run {number}")
    answer = people.client("viewer").get("/experiments/table.csv?sort=name")
    lines = list(csv.DictReader(b"".join(answer.streaming_content).decode().splitlines()))
    assert len(lines) == 31 == Experiment.objects.filter(team=people.team).count()
    (row,) = (line for line in lines if line["experiment"] == str(stored.experiment.pk))
    assert row["name"] == "'=HYPERLINK(1)" and float(row["step_time_s"]) == stored.experiment.step_time_s
