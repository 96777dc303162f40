"""The whole way through a real Celery worker and a real Redis, killed where it hurts."""

from __future__ import annotations

import io
import os
import signal
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from diagnosis.models import DiagnosisRecord
from experiments.models import Event, Run, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import runs, uploads
from proposals.models import PlanRecord, Proposal
from tests.backend.broker import broker
from tests.backend.factories import make_people
from tests.backend.services import eventually, redis_server, worker

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
        from celery import current_app

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
    assert [p.rank for p in Proposal.objects.filter(plan__run=run).order_by("rank")] == [1, 2, 3]


def test_without_a_configuration_the_run_waits_for_it_and_goes_on(queued, data_folder):
    import json

    from experiments.services import configuration

    people = make_people()
    with worker(queued.url, data_folder):
        experiment = upload_sample(people, config=False)
        eventually(lambda: runs.newest(experiment).status == RunStatus.CONFIGURING, 60)
        assert configuration.save(experiment, people.engineer, json.loads(CPU.config.read_text())).ok
        run = ended(experiment)
    assert run.status == RunStatus.READY, run.reason
    assert "configuring" in statuses(run)


def is_converting(experiment):
    return Event.objects.filter(experiment=experiment, kind="progress", data__stage="ingesting").count() >= 3


def test_a_machine_that_dies_in_the_middle_of_ingestion_loses_nothing(queued, data_folder):
    people = make_people()
    with worker(queued.url, data_folder) as first:
        experiment = upload_sample(people)
        eventually(lambda: is_converting(experiment), 60, "the converter is at work")
        first.kill()
        interrupted = runs.newest(experiment)
    assert interrupted.status == RunStatus.INGESTING
    with worker(queued.url, data_folder):
        run = ended(experiment)
    assert run == interrupted
    assert_done_once(run)
    assert Event.objects.filter(run=run, data__attempt=2).count() == 1


def test_a_killed_pool_process_is_replaced_and_the_run_goes_on(queued, data_folder):
    people = make_people()
    with worker(queued.url, data_folder) as running:
        experiment = upload_sample(people)
        eventually(lambda: is_converting(experiment), 60, "the converter is at work")
        (child,) = running.children()
        os.kill(child, signal.SIGKILL)
        run = ended(experiment)
        assert running.process.poll() is None
    assert_done_once(run)


def test_a_database_that_throws_everybody_out_interrupts_nothing(queued, data_folder):
    people = make_people()
    with worker(queued.url, data_folder):
        experiment = upload_sample(people)
        eventually(lambda: is_converting(experiment), 60, "the converter is at work")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert cursor.fetchone()[0] >= 1
        run = ended(experiment)
    assert_done_once(run)
    assert not Event.objects.filter(run=run, data__attempt__isnull=False).exists()  # the same worker went on


def test_an_upload_becomes_three_checked_proposals_once_however_often_its_task_is_delivered(queued, data_folder):
    people = make_people()
    experiment = upload_sample(people)
    run = runs.newest(experiment)
    for _ in range(5):
        runs.RUNS.send(run.pk)
    with worker(queued.url, data_folder), worker(queued.url, data_folder):
        run = ended(experiment)
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


def test_a_run_whose_task_the_broker_lost_is_taken_up_by_the_next_worker(queued, data_folder):
    from datetime import timedelta

    from celery import current_app

    people = make_people()
    experiment = upload_sample(people)
    assert current_app.control.purge() == 1
    Run.objects.update(created_at=runs.newest(experiment).created_at - timedelta(minutes=1))
    with worker(queued.url, data_folder):
        run = ended(experiment)
    assert_done_once(run)


def archive(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members.items():
            target.writestr(name.replace("__", "/"), content)
    return packed.getvalue()


def bad_uploads() -> dict[str, tuple[str, bytes]]:
    good = CPU.files[0].read_bytes()
    outside = zipfile.ZipInfo("../../../../tmp/asap-outside.xplane.pb")
    traversal = io.BytesIO()
    with zipfile.ZipFile(traversal, "w") as target:
        target.writestr(outside, b"\x0a\x00")
    return {
        "empty": ("empty.xplane.pb", b""),
        "text": ("notes.xplane.pb", b"loss 2.31, lr 3e-4\n" * 100),
        "random": ("random.xplane.pb", bytes((i * 7919 + 13) % 256 for i in range(50_000))),
        "cut off": ("cut.xplane.pb.gz", good[: len(good) // 2]),
        "many empty planes": ("planes.xplane.pb", b"\x0a\x00" * 500_000),
        "bomb": ("bomb.zip", archive(**{"host.xplane.pb": bytes(1_500_000_000)})),
        "path out of the archive": ("traversal.zip", traversal.getvalue()),
        "unknown kind": ("photo.jpg", b"\xff\xd8\xff\xe0" * 100),
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
        good = ended(upload_sample(people))
        assert running.children() == [child]
    assert good.status == RunStatus.READY, good.reason
    assert not os.path.exists("/tmp/asap-outside.xplane.pb")
