"""Teams take turns: the queue as real claims on PostgreSQL see it.  Only the work itself is replaced."""

from __future__ import annotations

from collections import Counter

import pytest
from django.utils import timezone

from accounts.models import Team
from experiments.models import Profile, Run, RunStatus
from experiments.services import runs
from jobs import turns, workers
from jobs.models import Turn
from knowledge import tasks as _reading  # noqa: F401  (implements the reading of documents)
from knowledge.models import Document, Kind, State
from knowledge.services import documents
from proposals import tasks
from proposals.services import coordinator
from tests.backend.factories import make_people, upload
from tests.backend.threads import in_threads

pytestmark = pytest.mark.django_db


def queue_runs(team: Team, count: int) -> list[int]:
    """So many uploaded runs of a team that wait for a worker."""
    made = []
    for _ in range(count):
        experiment = team.experiments.create(name="queued")
        profile = Profile.objects.create(team=team, experiment=experiment)
        made.append(Run.objects.create(team=team, experiment=experiment, profile=profile).pk)
    return made


@pytest.fixture
def worked(monkeypatch) -> list[int]:
    """Teams in the order in which their jobs were worked on."""
    order: list[int] = []

    def advance(pk: int) -> None:
        run = runs.claim(pk, workers.this_thread())
        if run is not None:
            order.append(run.team_id)
            runs.fail(run, "worked on", worker=run.worker)

    def read(pk: int) -> None:
        if documents.READING.claim(pk, workers.this_thread()):
            order.append(Document.objects.get(pk=pk).team_id)
            Document.objects.filter(pk=pk).update(state=State.FAILED, worker="")

    monkeypatch.setattr(coordinator, "advance", advance)
    monkeypatch.setattr(documents, "read", read)
    return order


@pytest.fixture
def teams(db) -> list[Team]:
    return [Team.objects.create(name=name) for name in ("First", "Second", "Third")]


def test_upload_waits_for_one_job_at_most_when_another_team_uploaded_200(teams, worked):
    busy, other, _ = teams
    messages = queue_runs(busy, 200)
    for pk in messages[:5]:
        tasks.advance_run(pk)
    messages = messages[5:] + queue_runs(other, 1)
    for pk in messages[:2]:
        tasks.advance_run(pk)
    assert worked == [busy.pk] * 5 + [other.pk, busy.pk]
    for pk in messages[2:]:
        tasks.advance_run(pk)
    assert Counter(worked) == {busy.pk: 200, other.pk: 1}
    assert not Run.objects.exclude(status=RunStatus.FAILED, attempts=0, worker="").exists()


def test_teams_take_turns_in_the_order_in_which_they_were_served(teams, worked):
    first, second, third = (team.pk for team in teams)
    messages = queue_runs(teams[0], 3) + queue_runs(teams[1], 3) + queue_runs(teams[2], 1)
    for pk in messages:
        tasks.advance_run(pk)
    assert worked == [first, second, third, first, second, first, second]


def test_jobs_of_another_kind_take_turns_too(teams, worked):
    messages = queue_runs(teams[0], 3)
    document = Document.objects.create(
        team=teams[1], kind=Kind.TEXT, state=State.READING, title="Notes", name="notes.md", sha256="0"
    )
    tasks.advance_run(messages[0])
    tasks.advance_run(messages[1])
    assert worked == [teams[0].pk, teams[1].pk]
    document.refresh_from_db()
    assert document.state == State.FAILED


def test_every_job_is_worked_on_once_when_workers_look_at_the_same_moment(transactional_db, monkeypatch):
    people = make_people()
    queue_runs(people.team, 8)
    kinds = [runs.RUNS]
    taken = in_threads(12, lambda n: turns.take(kinds, f"elsewhere/1/{n}/1"))
    keys = [job.pk for job in taken if job is not None]
    assert len(keys) == len(set(keys)) == 8
    assert Turn.objects.get().number == 8


def test_team_holds_no_more_jobs_at_once_than_its_limit(teams, settings, monkeypatch):
    settings.TEAM_JOBS = 1
    first, second = queue_runs(teams[0], 2)
    queue_runs(teams[1], 1)
    order: list[int] = []
    sent: list[int] = []

    def advance(pk: int) -> None:
        order.append(Run.objects.get(pk=pk).team_id)
        # Another worker, while this one works.
        if len(order) < 3:
            monkeypatch.setattr(workers, "this_thread", lambda: f"elsewhere/1/{len(order)}/1")
            tasks.advance_run(second)
        Run.objects.filter(pk=pk).update(status=RunStatus.READY, worker="")

    monkeypatch.setattr(coordinator, "advance", advance)
    monkeypatch.setattr("jobs.declared.DeclaredTask.send", lambda task, pk, after_s=0.0: sent.append(pk))
    tasks.advance_run(first)
    assert order == [teams[0].pk, teams[1].pk]  # not the first team's second one, for which a message was used up
    assert sent
    tasks.advance_run(sent[-1])
    assert order == [teams[0].pk, teams[1].pk, teams[0].pk]
    assert not runs.RUNS.waiting().exists()


def test_job_of_a_dead_worker_of_this_machine_is_taken_at_once(teams, worked):
    (pk,) = queue_runs(teams[0], 1)
    dead = workers.this_process().rsplit("/", 1)[0] + "/1"  # this PID, started at another time
    Run.objects.filter(pk=pk).update(worker=dead, heartbeat_at=timezone.now())
    tasks.advance_run(pk)
    assert worked == [teams[0].pk]


def test_place_counts_the_turns_of_other_teams(teams):
    first = queue_runs(teams[0], 5)
    second = queue_runs(teams[1], 3)
    assert runs.RUNS.jobs_before(first[0]) == runs.RUNS.jobs_before(second[0]) == 0
    Turn.objects.create(queue="", team=teams[1].pk, number=1)
    assert [runs.RUNS.jobs_before(pk) for pk in first] == [0, 2, 4, 6, 7]
    assert [runs.RUNS.jobs_before(pk) for pk in second] == [1, 3, 5]
    Run.objects.filter(pk=first[0]).update(worker="elsewhere/1/1/1", heartbeat_at=timezone.now())
    assert runs.RUNS.jobs_before(first[0]) is None


def test_waiting_run_shows_its_place_on_its_page_and_over_rest(people):
    queue_runs(people.team, 2)
    busy, waits = Run.objects.order_by("pk")
    client, api = people.client("viewer"), people.api("viewer")
    assert "1 job of all teams before it" in client.get(f"/experiments/{waits.experiment_id}/").content.decode()
    assert api.get(f"/api/runs/{waits.pk}/").json()["place"] == {"jobs_before": 1}
    assert runs.claim(busy.pk, "elsewhere/1/1/1")
    page = client.get(f"/experiments/{waits.experiment_id}/").content.decode()
    assert "Next in the queue" in page
    assert api.get(f"/api/runs/{waits.pk}/").json()["place"] == {"jobs_before": 0}
    assert api.get(f"/api/runs/{busy.pk}/").json()["place"] is None


def test_upload_is_refused_while_the_team_has_its_limit_of_waiting_runs(people, settings):
    settings.TEAM_WAITING = 2
    queue_runs(people.team, 2)
    api = people.api("engineer")
    refused = api.post("/api/experiments/", {"files": [upload()]}, format="multipart")
    assert refused.status_code == 429 and "2 analyses of this team are waiting" in refused.json()["detail"]
    page = people.client("engineer").post("/experiments/new/", {"files": [upload()]})
    assert page.status_code == 429
    assert people.team.experiments.count() == 2
    Run.objects.update(status=RunStatus.READY)
    assert api.post("/api/experiments/", {"files": [upload()]}, format="multipart").status_code == 201
