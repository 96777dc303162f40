"""A program that the performance model does not describe: ready with a diagnosis, and no proposals from any entry."""

from __future__ import annotations

import dataclasses

import pytest
from django.db import transaction

from campaigns.models import Campaign
from campaigns.services import campaigns
from campaigns.services.campaigns import CampaignError
from diagnosis import services as diagnosis_services
from experiments.models import RunStatus
from experiments.services import profiles, runs
from proposals.services import coordinator, plans, stored
from tests.backend.factories import make_experiment, step_profile

RECOMMENDER = "no op is attention: a recommender"


@pytest.fixture
def recommender(people):
    """Lookups in embedding tables take half of the step, as in DLRM."""
    experiment = make_experiment(people, "dlrm")
    run = runs.newest(experiment)
    value = step_profile()
    first, *others = (dataclasses.replace(op, hlo="", op_name="") for op in value.ops)
    lookup = dataclasses.replace(
        first, name="lookup", category="embedding gather", op_name="forward/EmbeddingBag/embedding_lookup"
    )
    value = dataclasses.replace(value, ops=(lookup, *others))
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    assert runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    coordinator.advance(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.READY, run.reason
    return experiment


def test_the_run_is_ready_and_every_entry_gives_the_reason(people, recommender, client):
    plan = plans.newest(recommender)
    assert RECOMMENDER in plan.value.not_modelled and not plan.proposals.exists()
    client.force_login(people.engineer)
    assert RECOMMENDER in client.get(f"/experiments/{recommender.pk}/proposals/").content.decode()
    assert client.get(f"/experiments/{recommender.pk}/").status_code == 200
    assert client.get(f"/explore/?experiment={recommender.pk}").status_code == 200
    data = client.get(f"/api/plans/{plan.pk}/").json()
    assert RECOMMENDER in data["not_modelled"] and data["proposals"] == []
    own = client.get(f"/plans/{plan.pk}/own/", {"config": "data=4 model=4"}, headers={"hx-request": "true"})
    assert RECOMMENDER in own.content.decode()
    with pytest.raises(CampaignError, match="recommender"):
        campaigns.begin(recommender, people.engineer, Campaign(backend="modelled"))


def test_the_dialogue_can_look_at_the_run_and_prices_nothing(people, recommender):
    bench = stored.workbench(recommender, people.engineer)
    assert bench.diagnosis.findings is not None
    with pytest.raises(Exception, match="recommender"):
        _ = bench.pricer


def test_an_engineer_corrects_what_was_recorded(recommender, people) -> None:
    """The correction stays with the run's profile, is an event, and everything is concluded anew."""
    run = runs.newest(recommender)
    again = diagnosis_services.state_recording(run, people.engineer, "training", "transformer")
    assert again.pk > run.pk and again.status == RunStatus.DIAGNOSING
    coordinator.advance(again.pk)
    again.refresh_from_db()
    recording = again.diagnosis.value.recording
    assert (recording.kind, recording.program, recording.stated) == ("training", "transformer", ("kind", "program"))
    assert not again.diagnosis.value.not_modelled
    event = recommender.events.get(kind="recording")
    assert event.user == people.engineer and event.data["program"] == "transformer"
    assert diagnosis_services.state_recording(again, people.engineer, "training", "transformer").pk == again.pk
    with pytest.raises(runs.RunError, match="newer analysis"):
        diagnosis_services.state_recording(run, people.engineer, "", "")


def test_the_page_says_what_was_recorded_and_engineers_correct_it(recommender, people) -> None:
    address = f"/experiments/{recommender.pk}/"
    page = people.client("viewer").get(address).content.decode()
    assert "of a recommender" in page and "Correct and diagnose again" not in page
    engineer = people.client("engineer")
    assert "Correct and diagnose again" in engineer.get(address).content.decode()
    assert engineer.post(f"{address}recording/", {"kind": "nonsense"}).status_code == 400
    assert engineer.post(f"{address}recording/", {"program": "transformer"}).status_code == 302
    assert profiles.load(runs.newest(recommender).profile).recorded.program == "transformer"
    written = people.client("viewer").get(f"{address}report.md").content.decode()
    assert "Recording: " in written and "\n\n\n" not in written
