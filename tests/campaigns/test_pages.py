"""Pages, export and REST of campaigns."""

from __future__ import annotations

import csv
import html
import json
import re
from io import StringIO

import pytest

from campaigns import presentation
from campaigns.models import Campaign, TrialStatus
from campaigns.services import campaigns, running
from experiments.models import Experiment
from perfmodel.config import ConfigError
from perfmodel.config_file import parse_config
from perfmodel.price import baseline_of
from tests.backend.test_step_time import measured, started

pytestmark = [pytest.mark.slow, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def unsent(monkeypatch):
    """Nobody takes messages."""
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)


@pytest.fixture
def ended(people, ready):
    campaign = campaigns.begin(ready.experiment, people.engineer, Campaign(most_trials=6, expert_step_time_s=0.9))
    while waiting := campaign.trials.filter(status=TrialStatus.WAITING).first():
        running.run(waiting.pk)
    campaign.refresh_from_db()
    return campaign


def test_the_form_begins_a_campaign_and_leads_to_its_pool(people, ready):
    client = people.client("engineer")
    form = {"backend": "modelled", "most_trials": 4, "parallel": 2, "keep_remat": "on"}
    answer = client.post(f"/experiments/{ready.experiment.pk}/campaigns/", form)
    made = ready.experiment.campaigns.get()
    assert answer.headers["location"] == f"/campaigns/{made.pk}/"
    assert made.constraints == {"keep_remat": True}
    page = client.get(f"/campaigns/{made.pk}/").content.decode()
    assert "The first trial is running" in page


def test_what_is_left_empty_has_its_default(people, ready):
    empty = {"most_tokens": "", "steps": "", "tool": ""}
    form = {"backend": "modelled", "most_trials": 4, "parallel": 1, **empty}
    assert people.client("engineer").post(f"/experiments/{ready.experiment.pk}/campaigns/", form).status_code == 302
    given = {"experiment": ready.experiment.pk, "backend": "modelled", "most_trials": 4, "tool": "", "steps": None}
    answer = people.client("engineer").post("/api/campaigns/", given, content_type="application/json")
    assert answer.status_code == 201, answer.content
    assert set(ready.experiment.campaigns.values_list("most_tokens", flat=True)) == {500_000}


def test_what_cannot_be_begun_is_said_beside_the_form(people, ready):
    address = f"/experiments/{ready.experiment.pk}/campaigns/"
    form = {"backend": "modelled", "most_trials": 4, "parallel": 1, "most_dollars": 5}
    answer = people.client("engineer").post(address, form)
    assert answer.status_code == 400
    assert "needs the price of a chip per hour" in answer.content.decode()


def test_an_impossible_measured_step_time_is_refused_as_on_the_command_line(people, ready):
    ready.experiment.runs.update(status="failed")  # without a profile to read the measured step time counts
    Experiment.objects.filter(pk=ready.experiment.pk).update(config=measured(1e-6))
    with pytest.raises(ConfigError) as refused:
        baseline_of(parse_config(measured(1e-6))[0])
    sentence = str(refused.value)
    assert sentence.startswith("measured.step_time_s: is 1.00")
    form = {"backend": "modelled", "most_trials": 7, "parallel": 2, "most_hours": "1.5", "keep_remat": "on"}
    answer = people.client("engineer").post(f"/experiments/{ready.experiment.pk}/campaigns/", form)
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 400 and page.count(sentence) == 1 and "#f-measured-step_time_s" in page
    assert 'value="7"' in page and 'value="1.5"' in page and re.search(r'name="keep_remat"[^>]*checked', page)
    asked = {"experiment": ready.experiment.pk, "backend": "modelled"}
    over_rest = people.client("engineer").post("/api/campaigns/", asked, content_type="application/json")
    assert over_rest.status_code == 400
    assert over_rest.json() == {"detail": sentence, "errors": {"measured.step_time_s": sentence}}
    assert not ready.experiment.campaigns.exists()


def test_without_a_profile_to_read_the_measured_step_time_calibrates(people, ready):
    ready.experiment.runs.update(status="failed")
    Experiment.objects.filter(pk=ready.experiment.pk).update(config=measured(3.0))
    ready.experiment.refresh_from_db()
    campaign = campaigns.begin(ready.experiment, people.engineer, Campaign(most_trials=1))
    running.run(campaign.trials.get(number=0).pk)
    assert campaign.trials.get(number=0).step_time_s == pytest.approx(3.0)


def test_a_budget_in_dollars_asks_for_the_price_beside_its_field(people, ready):
    form = {"backend": "modelled", "most_trials": 4, "parallel": 1, "most_dollars": "100"}
    page = people.client("engineer").post(f"/experiments/{ready.experiment.pk}/campaigns/", form).content.decode()
    field = page[page.index("Price per chip-hour") :]
    assert "needs the price of a chip per hour" in field[: field.index('<div class="field')]


def test_a_page_follows_a_paused_campaign_until_its_trials_have_ended(people, ready):
    campaign = campaigns.begin(ready.experiment, people.engineer, Campaign())
    campaign.trials.update(status=TrialStatus.RUNNING)
    campaigns.change(campaign, people.engineer, "pause")
    address = f"/campaigns/{campaign.pk}/"
    assert 'hx-trigger="every 4s"' in people.client("viewer").get(address).content.decode()
    campaign.trials.update(status=TrialStatus.DONE, step_time_s=1.0)
    assert 'hx-trigger="every 4s"' not in people.client("viewer").get(address).content.decode()


def test_the_pool_shows_every_trial_with_its_reason(people, ended):
    page = people.client("viewer").get(f"/campaigns/{ended.pk}/").content.decode()
    for trial in ended.trials.all():
        assert f'id="trial-{trial.number}"' in page
    assert "predicted against" in page
    assert "Pause" not in page
    slower = people.client("viewer").get(f"/campaigns/{ended.pk}/?order=time&state=failed&page=99")
    assert slower.status_code == 200


def test_trials_that_nobody_ran_are_predicted(people, ended):
    page = people.client("viewer").get(f"/campaigns/{ended.pk}/").content.decode()
    assert ">Predicted</a>" in page and page.count("Predicted</span>") >= ended.trials.count()
    assert ">Ran<" not in page and "has run" not in page


def test_the_first_trial_of_the_model_takes_what_was_measured_without_a_profile(people):
    experiment = started(people, measured(3.0))
    campaign = campaigns.begin(experiment, people.engineer, Campaign(most_trials=1))
    running.run(campaign.trials.get(number=0).pk)
    assert campaign.trials.get(number=0).step_time_s == pytest.approx(3.0)


def test_the_best_of_the_head_is_the_fastest_of_the_table(ended):
    trials = list(ended.trials.all())
    over = presentation.overview(ended, trials)
    assert over["best"].step_time_s == min(trial.step_time_s for trial in trials if trial.step_time_s)
    assert over["speedup"] == pytest.approx(trials[0].step_time_s / over["best"].step_time_s)


def test_every_trial_is_drawn_with_what_was_predicted_before_it(ended):
    trials = list(ended.trials.all())
    found = presentation.plotted(ended, trials)
    assert [point[0] for point in found["points"]] == [trial.number for trial in trials] and found["expert"] == 0.9
    assert found["points"][0][3:6] == [None, None, None]
    for _, _, _, predicted, low, high, _, values in found["points"][1:]:
        assert low < predicted < high and len(values) == len(found["names"])
        assert all(value in known for value, known in zip(values, found["values"], strict=True))


def test_of_step_times_that_were_measured_it_says_how_many_were_inside(ended):
    ended.trials.filter(number__gt=0).update(modelled=False, predicted_low_s=1e-9, predicted_high_s=1e9)
    ended.trials.filter(number=1).update(predicted_high_s=2e-9)
    trials = list(ended.trials.all())
    found = presentation.plotted(ended, trials)
    ran = [trial for trial in trials if trial.number and trial.step_time_s]
    assert (found["inside"], found["checked"]) == (len(ran) - bool(trials[1].step_time_s), len(ran))


def test_of_many_trials_every_improvement_is_drawn(ended, monkeypatch):
    monkeypatch.setattr(presentation, "MOST_POINTS", 2)
    trials = list(ended.trials.all())
    numbers = {point[0] for point in presentation.plotted(ended, trials)["points"]}
    best = min((trial for trial in trials if trial.step_time_s), key=lambda trial: trial.step_time_s)
    assert best.number in numbers and len(numbers) < len(trials)


def test_a_trial_that_has_not_ended_is_drawn_where_it_is_expected(people, ready):
    campaign = campaigns.begin(ready.experiment, people.engineer, Campaign(most_trials=6))
    running.run(campaign.trials.get(number=0).pk)
    points = presentation.plotted(campaign, list(campaign.trials.all()))["points"]
    assert [point[1] for point in points] == ["done", "waiting"] and points[1][3]


def test_shares_of_variance_are_shares(ended):
    rows = presentation.importance(list(ended.trials.all()))
    assert rows
    assert all(-1e-9 <= row["share"] <= 1.0 + 1e-9 for row in rows)
    assert [row["share"] for row in rows] == sorted((row["share"] for row in rows), reverse=True)


def test_the_export_has_a_row_per_trial(people, ended):
    client = people.client("viewer")
    rows = list(csv.DictReader(StringIO(client.get(f"/campaigns/{ended.pk}/trials.csv").content.decode())))
    told = people.api("viewer").get(f"/api/campaigns/{ended.pk}/trials/").json()["results"]
    assert len(rows) == len(told) == ended.trials.count()
    assert [float(row["step_time_s"]) for row in rows if row["step_time_s"]] == [
        row["step_time_s"] for row in told if row["step_time_s"]
    ]


def test_two_trials_differ_in_what_the_reason_says(people, ended):
    page = people.client("viewer").get(f"/campaigns/{ended.pk}/difference/?a=0&b=1").content.decode()
    rows = presentation.differences(ended.trials.get(number=0), ended.trials.get(number=1))
    assert rows
    for name, *_ in rows:
        assert presentation.shown(name).split("_")[0] in page.lower()


def test_rest_begins_follows_and_ends_one(people, ready):
    api = people.api("engineer")
    answer = api.post("/api/campaigns/", {"experiment": ready.experiment.pk, "most_trials": 3}, format="json")
    assert answer.status_code == 201, answer.content
    pk = answer.json()["id"]
    assert [trial["number"] for trial in api.get(f"/api/campaigns/{pk}/trials/").json()["results"]] == [0]
    assert api.post(f"/api/campaigns/{pk}/change/", {"change": "cancel"}, format="json").json()["status"] == "cancelled"
    assert api.post(f"/api/campaigns/{pk}/change/", {"change": "pause"}, format="json").status_code == 409
    assert people.api("viewer").post("/api/campaigns/", {"experiment": ready.experiment.pk}).status_code == 403


def test_the_command_prints_the_best_and_every_reason(tmp_path, capsys):
    import json

    from asapweb.cli import main
    from tests.backend.factories import CONFIG

    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    assert main(["campaign", str(file), "--trials", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["trials"]) == 4
    assert told["best"]["step_time_s"] <= told["trials"][0]["step_time_s"]
    assert main(["campaign", str(file), "--trials", "none"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_of_a_modelled_campaign_the_best_so_far_is_predicted_not_measured(ended):
    words = json.dumps(list(ended.trials.filter(number__gt=0).values_list("why", flat=True)))
    assert re.findall(r'"best so far"[^{}]*"(predicted|measured)"', words).count("predicted")
    assert not re.search(r'"best so far"[^{}]*"measured"', words)


@pytest.mark.parametrize(("field", "value"), [("most_trials", 0), ("steps", 3), ("most_dollars", -1), ("tool", "bash")])
def test_page_and_rest_refuse_the_same_values(people, ready, field, value):
    client, given = people.client("engineer"), {"backend": "modelled", "most_trials": 3, "parallel": 1, field: value}
    assert client.post(f"/experiments/{ready.experiment.pk}/campaigns/", given).status_code == 400
    given["experiment"] = ready.experiment.pk
    answer = client.post("/api/campaigns/", given, content_type="application/json")
    assert answer.status_code == 400 and field in answer.json()["errors"]
    assert not ready.experiment.campaigns.exists()
