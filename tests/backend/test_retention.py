"""Retention: old payloads go, with an Event that says so; everything that was decided, measured or answered stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Team
from experiments.models import Event
from experiments.services import events, retention
from tests.backend.test_memory import STEPS, record

REMOVED = {"model_request", "model_response", "tool_call", "tool_result", "complaint"}


def age(experiment, days):
    Event.objects.filter(experiment=experiment).update(created_at=timezone.now() - timedelta(days=days))


def data(experiment):
    return dict(experiment.events.values_list("pk", "data"))


@pytest.fixture
def keeping(people):
    people.team.keep_payloads_days = 30
    people.team.save()
    return people.team


def test_nothing_goes_unless_a_team_says_so(people, ready):
    record(ready.experiment)
    age(ready.experiment, 4000)
    before = data(ready.experiment)
    assert retention.sweep() == 0
    assert data(ready.experiment) == before


def test_old_payloads_go_and_the_rest_stays_as_it_was(people, ready, keeping):
    experiment = ready.experiment
    rows = record(experiment)
    events.append(experiment, "message", "user", data={"thread": 7, "text": "Why is it slow?"})
    age(experiment, 31)
    young = record(experiment, STEPS[3:6], thread=8, message=80)
    before = data(experiment)
    assert retention.sweep() == len([row for row in rows if row.kind in REMOVED])
    after = data(experiment)
    for event in experiment.events.order_by("pk"):
        if event.kind == "retention":
            continue
        gone = event.kind in REMOVED and event.pk not in {row.pk for row in young}
        assert (event.removed_at is not None) is gone
        if not gone:
            assert after[event.pk] == before[event.pk], event.kind
    text = str(list(experiment.events.filter(removed_at__isnull=False).values_list("data", "brief")))
    for word in ("layer seven", "1.25", "'data': 16", "40 %", "Mend it"):
        assert word not in text, word
    assert "qwen3-32b" in text and "predict" in text  # which model and which tool stays on record


def test_the_facts_of_a_step_stay(people, ready, keeping):
    rows = record(ready.experiment)
    age(ready.experiment, 31)
    retention.sweep()
    response = Event.objects.get(pk=rows[3].pk)
    assert (response.tokens, response.cost_usd, response.duration_s) == (1280, 0.0042, 1.5)
    assert response.data["calls"] == [{"name": "predict"}] and response.thread == 7
    assert Event.objects.get(pk=rows[5].pk).data["ok"] is True


def test_an_event_says_what_was_taken_out(people, ready, keeping):
    record(ready.experiment)
    age(ready.experiment, 31)
    count = retention.sweep()
    said = ready.experiment.events.get(kind="retention")
    assert (said.data["events"], said.data["days"], said.actor) == (count, 30, "worker")
    assert said.data["bytes"] > 20_000
    text = people.client("viewer").get(f"/experiments/{ready.experiment.pk}/memory/").content.decode()
    assert f"{count} payloads removed" in text and "payload was removed on" in text


def test_a_second_sweep_finds_nothing_and_says_nothing(people, ready, keeping):
    record(ready.experiment)
    age(ready.experiment, 31)
    assert retention.sweep() > 0
    before = data(ready.experiment)
    assert retention.sweep() == 0
    assert data(ready.experiment) == before


def test_what_was_removed_is_found_no_longer(people, ready, keeping):
    record(ready.experiment)
    client, address = people.client("viewer"), f"/experiments/{ready.experiment.pk}/memory/"
    assert "event-" in client.get(address, {"q": "layer seven"}).content.decode().partition("<ol")[2]
    age(ready.experiment, 31)
    retention.sweep()
    assert "No event matches" in client.get(address, {"q": "layer seven"}).content.decode()


def test_many_go_in_batches_each_with_its_event(people, ready, keeping, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 4)
    for _ in range(3):
        record(ready.experiment)
    age(ready.experiment, 31)
    count = retention.sweep()
    said = ready.experiment.events.filter(kind="retention")
    assert count == 18 == sum(event.data["events"] for event in said)
    assert [event.data["events"] for event in said] == [4, 4, 4, 4, 2]


def test_the_task_sweeps(people, ready, keeping):
    from experiments.tasks import remove_old_payloads

    record(ready.experiment)
    age(ready.experiment, 31)
    assert remove_old_payloads() > 0


def test_another_team_keeps_its_own(people, ready, keeping):
    record(ready.experiment)
    age(ready.experiment, 31)
    Team.objects.filter(pk=ready.experiment.team_id).update(keep_payloads_days=None)
    Team.objects.filter(name="Another team").update(keep_payloads_days=1)
    assert retention.sweep() == 0


def test_an_administrator_sets_the_days_and_nobody_else(people, client):
    for who, status in (("administrator", 302), ("reviewer", 403), ("viewer", 403), ("anonymous", 302)):
        response = people.client(who).post("/settings/retention/", {"days": "90"})
        assert response.status_code == status, who
        people.team.refresh_from_db()
        assert people.team.keep_payloads_days == (90 if who == "administrator" else None)
        Team.objects.update(keep_payloads_days=None)
    assert people.client("administrator").get("/settings/retention/").status_code == 405


def test_empty_keeps_for_ever(people):
    client = people.client("administrator")
    client.post("/settings/retention/", {"days": "7"})
    assert 'value="7"' in client.get("/settings/").content.decode()
    client.post("/settings/retention/", {"days": " "})
    people.team.refresh_from_db()
    assert people.team.keep_payloads_days is None
    assert "as long as their experiment" in people.client("viewer").get("/settings/").content.decode()


@pytest.mark.parametrize("text", ["0", "-3", "3651", "many", "1.5", "99999999999", "７"])
def test_what_is_no_number_of_days_is_refused_in_a_sentence(people, text):
    people.team.keep_payloads_days = 30
    people.team.save()
    response = people.client("administrator").post("/settings/retention/", {"days": text}, follow=True)
    assert "whole number of days from 1 to 3,650" in response.content.decode()
    people.team.refresh_from_db()
    assert people.team.keep_payloads_days == 30
