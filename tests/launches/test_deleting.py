"""Deleting an experiment whose launches or campaigns have jobs on the cluster."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from campaigns.models import Campaign, TrialStatus
from campaigns.services import campaigns, launched
from experiments.models import Experiment
from launches.models import ArmRun, Launch
from launches.services import launching
from tests.campaigns.cluster import enable, turn
from tests.launches.reports import work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nobody_takes_messages(monkeypatch: Any) -> None:
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)


@pytest.fixture
def cancelled(people: Any, settings: Any, tmp_path: Any) -> Any:
    """The names of the jobs that a cluster, which takes every job and runs it for ever, was asked to end."""
    enable(
        people,
        settings,
        tmp_path,
        f"""submit = "echo {{name}}"\nstatus = "echo running"
cancel = "bash -c 'echo {{name}} >> {tmp_path}/cancelled'\"""",
    )
    return tmp_path / "cancelled"


@pytest.fixture
def running(people: Any, approved: Any, cancelled: Any) -> Any:
    """A launch on that cluster, both arms of which run."""
    made = launching.launch(approved, people.engineer, tool="maxtext", repeats=1, steps=30, server="http://testserver")
    work(made)
    launching.follow()
    assert set(made.runs.values_list("status", flat=True)) == {"running"}
    return made


def page(people: Any, experiment: Any) -> str:
    return " ".join(
        people.client("administrator").get(f"/experiments/{experiment.pk}/delete/").content.decode().split()
    )


def delete(people: Any, experiment: Any) -> str:
    """What the page says after its button was pressed."""
    answer = people.client("administrator").post(f"/experiments/{experiment.pk}/delete/", follow=True)
    return " ".join(answer.content.decode().split())


def test_while_a_launch_runs_nothing_is_deleted_and_the_page_says_what_to_cancel(people, running, cancelled):
    experiment = running.experiment
    said = f"Launch {running.pk} of proposal 1 has not ended; its runs would continue unmonitored."
    shown = page(people, experiment)
    assert said in shown and f"launches/#launch-{running.pk}" in shown and "This cannot be undone" not in shown
    assert said in delete(people, experiment)
    refused = people.api("administrator").delete(f"/api/experiments/{experiment.pk}/")
    assert refused.status_code == 409
    assert refused.json()["detail"].endswith(f"{said} Cancel it first: POST /api/launches/{running.pk}/cancel/.")
    assert Experiment.objects.filter(pk=experiment.pk).exists() and not cancelled.exists()


def test_once_cancelled_and_ended_on_the_cluster_it_can_be_deleted(people, running, cancelled):
    experiment, names = running.experiment, {run.name for run in running.runs.all()}
    assert people.api("engineer").post(f"/api/launches/{running.pk}/cancel/").status_code == 200
    shown = page(people, experiment)  # before the sweep came by
    assert "is still being cancelled; delete the experiment in a minute." in shown and not cancelled.exists()
    assert all(name in shown for name in names)
    launching.follow()
    assert set(cancelled.read_text().split()) == names
    assert "This cannot be undone" in page(people, experiment)
    assert people.api("administrator").delete(f"/api/experiments/{experiment.pk}/").status_code == 204
    assert not Launch.objects.exists()


def test_a_job_that_the_cluster_does_not_end_holds_it_for_a_day_and_is_named_after(people, running, settings, tmp_path):
    enable(
        people,
        settings,
        tmp_path,
        'submit = "false"\nstatus = "echo running"\ncancel = "bash -c \'echo no >&2; exit 3\'"',
    )
    launching.cancel(running, people.engineer)
    launching.follow()
    run = running.runs.first()
    assert (
        run.reason
        == f"Cancelled, but job {run.name} on command.here could not be cancelled yet: bash ended with status 3: no"
    )
    assert "still being cancelled" in delete(people, running.experiment)
    Launch.objects.filter(pk=running.pk).update(closed_at=timezone.now() - timedelta(days=2))
    assert "could not be cancelled within a day: cancel it there yourself." in page(people, running.experiment)
    assert "Deleted baseline" in delete(people, running.experiment)


def test_a_cancellation_that_fails_is_tried_ever_more_rarely_and_after_a_day_no_more(
    people, running, settings, tmp_path
):
    tries = tmp_path / "tries"
    enable(
        people,
        settings,
        tmp_path,
        f"""submit = "false"\nstatus = "echo running"
cancel = "bash -c 'echo {{name}} >> {tries}; exit 3'\"""",
    )
    launching.cancel(running, people.engineer)
    run = running.runs.get(arm="proposal")

    def after(past: timedelta) -> int:
        """Attempts so far, once the clocks have moved on and the sweep came by."""
        for rows, column in ((Launch.objects, "closed_at"), (ArmRun.objects, "heartbeat_at")):
            rows.update(**{column: F(column) - past})
        launching.follow()
        return tries.read_text().split().count(run.name)

    def shown() -> str:
        return people.client("viewer").get(f"/proposals/{running.proposal_id}/launches/").content.decode()

    assert after(timedelta()) == 1 and "could not be cancelled yet" in shown()
    assert after(timedelta(seconds=15)) == 2 and after(timedelta(seconds=5)) == 2
    assert after(timedelta(seconds=11)) == 3
    attempts = [after(timedelta(minutes=30)) for _ in range(60)]
    assert attempts[-1] <= 40 and attempts[-1] == attempts[-10]
    assert f"job {run.name} on command.here could not be cancelled within a day: cancel it there yourself." in shown()


def test_what_is_over_on_the_cluster_holds_nothing_though_it_cannot_be_cancelled(people, running, settings, tmp_path):
    enable(people, settings, tmp_path, 'submit = "false"\nstatus = "echo gone"\ncancel = "false"')
    launching.cancel(running, people.engineer)
    launching.follow()
    assert "Deleted baseline" in delete(people, running.experiment)


def test_a_job_that_was_being_submitted_meanwhile_is_ended(people, approved, cancelled, monkeypatch):
    made = launching.launch(approved, people.engineer, tool="maxtext", repeats=1, steps=30, server="http://testserver")
    token = launching._token

    def meanwhile(launch: Any, user: Any) -> str:
        text = token(launch, user)
        launching.cancel(Launch.objects.get(pk=made.pk), people.engineer)
        assert "Deleted baseline" in delete(people, made.experiment)
        return text

    monkeypatch.setattr(launching, "_token", meanwhile)
    run = made.runs.get(arm="proposal")
    launching.advance(run.pk)
    assert not Launch.objects.exists() and cancelled.read_text().split() == [run.name]


def test_a_campaign_on_the_cluster_is_cancelled_first(people, ready, cancelled):
    experiment = ready.experiment
    asked = Campaign(backend="cluster", most_trials=3, server="http://testserver")
    campaign = campaigns.begin(experiment, people.engineer, asked)
    said = f"Campaign {campaign.pk} has not ended; its trials on the cluster would continue unmonitored."
    assert said in page(people, experiment)  # its first trial may be launched at any moment
    turn(campaign)
    assert campaign.trials.get().status == TrialStatus.LAUNCHED
    shown = delete(people, experiment)
    assert said in shown and f'href="/campaigns/{campaign.pk}/"' in shown
    refused = people.api("engineer").delete(f"/api/experiments/{experiment.pk}/")
    assert refused.status_code == 409 and f"POST /api/campaigns/{campaign.pk}/change/" in refused.json()["detail"]
    name = ArmRun.objects.get().name
    campaigns.change(campaign, people.engineer, "cancel")
    assert f"Job {name} on command.here is still being cancelled" in delete(people, experiment)
    launched.follow()
    launching.follow()
    assert cancelled.read_text().split() == [name]
    assert "Deleted baseline" in delete(people, experiment)


def test_a_campaign_that_launches_nothing_goes_with_its_experiment(people, ready):
    campaigns.begin(ready.experiment, people.engineer, Campaign(most_trials=3))
    assert "A campaign running on this server is stopped." in page(people, ready.experiment)
    assert "Deleted baseline" in delete(people, ready.experiment)
