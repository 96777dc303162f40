"""The whole way through a real Celery worker and a real Redis, killed where it hurts."""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from datetime import timedelta

import pytest
from celery import current_app
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from diagnosis.models import DiagnosisRecord
from experiments.models import Event, Run, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import configuration, runs, uploads
from proposals.models import PlanRecord, Proposal
from tests.backend.broker import broker
from tests.backend.factories import make_people
from tests.backend.services import eventually, redis_server, worker
from tests.hostile.files import zip_of_zeros

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

CPU = next(sample for sample in SAMPLES if sample.key == "cpu-data8")


@pytest.fixture(scope="module")
def redis():
    with redis_server() as server:
        yield server


@pytest.fixture
def queued(redis):
    """This process sends its tasks to the Redis; what an earlier test left in it is gone."""
    with broker(redis.url):
        current_app.control.purge()
        yield redis


def upload_sample(people, sample=CPU, config=True):
    files = [SimpleUploadedFile(path.name, path.read_bytes()) for path in sample.files]
    return uploads.receive(people.team, people.engineer, files, sample.config.read_text() if config else None)


def ended(experiment):
    """The newest run of the experiment once it has ended."""

    def look():
        run = runs.newest(experiment)
        return run if RunStatus(run.status).is_final else None

    return eventually(look, 120, "the run has ended")


def statuses(run):
    return [e.data["to"] for e in Event.objects.filter(run=run, kind="status").order_by("pk")]


STAGES = ["uploaded", "ingesting", "diagnosing", "proposing", "checking", "ready"]


def assert_done_once(run):
    """Every stage was left once, and what it stores is there once."""
    assert run.status == RunStatus.READY, run.reason
    assert statuses(run) == STAGES
    assert DiagnosisRecord.objects.filter(run=run).count() == 1
    assert PlanRecord.objects.filter(run=run).count() == 1
    assert [p.rank for p in Proposal.objects.filter(plan__run=run).order_by("rank")] == [1, 2]


def is_converting(experiment):
    return Event.objects.filter(experiment=experiment, kind="progress", data__stage="ingesting").count() >= 3


def test_whatever_dies_in_the_middle_of_ingestion_loses_nothing(queued, data_folder):
    """The machine, a process of the pool, all connections to the database: one run each."""
    people = make_people()

    def converting():
        experiment = upload_sample(people)
        eventually(lambda: is_converting(experiment), 60, "the converter is at work")
        return experiment

    with worker(queued.url, data_folder) as first:
        experiment = converting()
        first.kill()
        interrupted = runs.newest(experiment)
    assert interrupted.status == RunStatus.INGESTING
    with worker(queued.url, data_folder) as second:
        run = ended(experiment)
        assert run == interrupted
        assert_done_once(run)
        assert Event.objects.filter(run=run, data__attempt=2).count() == 1

        experiment = converting()
        (child,) = second.children()
        os.kill(child, signal.SIGKILL)
        assert_done_once(ended(experiment))
        assert second.process.poll() is None

        experiment = converting()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert cursor.fetchone()[0] >= 1
        run = ended(experiment)
        assert_done_once(run)
        assert not Event.objects.filter(run=run, data__attempt__isnull=False).exists()  # the same worker went on


def test_a_task_that_is_lost_or_delivered_again_and_again_becomes_checked_proposals_once(queued, data_folder):
    people = make_people()
    lost = upload_sample(people)
    assert current_app.control.purge() == 1
    Run.objects.update(created_at=runs.newest(lost).created_at - timedelta(minutes=1))
    experiment = upload_sample(people)
    run = runs.newest(experiment)
    for _ in range(5):
        runs.RUNS.send(run.pk)
    with worker(queued.url, data_folder), worker(queued.url, data_folder):
        run = ended(experiment)
        assert_done_once(ended(lost))
    assert_done_once(run)
    assert not Event.objects.filter(run=run, data__attempt__isnull=False).exists()
    experiment.refresh_from_db()
    assert experiment.state == RunStatus.READY
    assert experiment.bottleneck
    assert experiment.step_time_s > 0
    progress = Event.objects.filter(run=run, kind="progress", data__stage="ingesting").order_by("pk")
    fractions = [event.data["fraction"] for event in progress if event.data["fraction"] is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def bad_uploads() -> dict[str, tuple[str, bytes]]:
    """Of all that tests/ingest and tests/hostile refuse, a few that could harm the process that refuses them."""
    good = CPU.files[0].read_bytes()
    outside = zipfile.ZipInfo("../../../../tmp/asap-outside.xplane.pb")
    traversal = io.BytesIO()
    with zipfile.ZipFile(traversal, "w") as target:
        target.writestr(outside, b"\x0a\x00")
    return {
        "cut off": ("cut.xplane.pb.gz", good[: len(good) // 2]),
        "bomb": ("bomb.zip", zip_of_zeros()),
        "path out of the archive": ("traversal.zip", traversal.getvalue()),
        "markup as a name": ("<img src=x onerror=alert(1)>.xplane.pb", b"\xff" * 99),
    }


def test_bad_uploads_fail_with_a_sentence_and_leave_the_worker_unharmed(queued, data_folder):
    people = make_people()
    with worker(queued.url, data_folder) as running:
        (child,) = eventually(lambda: running.children() or None)
        experiments = {
            what: uploads.receive(people.team, people.engineer, [SimpleUploadedFile(name, content)])
            for what, (name, content) in bad_uploads().items()
        }
        for what, experiment in experiments.items():
            run = ended(experiment)
            assert run.status == RunStatus.FAILED, what
            assert 20 < len(run.reason) <= 300, what
            assert "\n" not in run.reason
            assert run.reason.rstrip().endswith("."), (what, run.reason)
            assert "Internal error" not in run.reason, (what, run.reason)
            assert run.profile.files.count() == 1  # the upload stays
        # One without a configuration waits for it and goes on.
        experiment = upload_sample(people, config=False)
        eventually(lambda: runs.newest(experiment).status == RunStatus.CONFIGURING, 60)
        assert configuration.save(experiment, people.engineer, json.loads(CPU.config.read_text())).ok
        good = ended(experiment)
        assert running.children() == [child]
    assert good.status == RunStatus.READY, good.reason
    assert "configuring" in statuses(good)
    assert not os.path.exists("/tmp/asap-outside.xplane.pb")
