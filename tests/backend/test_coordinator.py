"""The Coordinator with its real engines, in this process."""

from __future__ import annotations

import dataclasses
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction

from diagnosis.models import DiagnosisRecord
from experiments.models import Event, Run, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import configuration, profiles, runs, uploads
from proposals.models import PlanRecord
from proposals.services import coordinator
from tests.backend.factories import CONFIG, make_experiment, step_profile

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people(transactional_db):
    from tests.backend.factories import make_people

    return make_people()


def upload_sample(people, sample):
    files = [SimpleUploadedFile(path.name, path.read_bytes()) for path in sample.files]
    return uploads.receive(people.team, people.engineer, files, sample.config.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.key)
def test_every_shipped_profile_becomes_ready(people, sample):
    experiment = upload_sample(people, sample)
    coordinator.advance(runs.newest(experiment).pk)
    run = runs.newest(experiment)
    assert run.status == RunStatus.READY, run.reason
    plan = PlanRecord.objects.get(run=run)
    meshes = [json.dumps([p.data["mesh"], p.data["changes"]]) for p in plan.proposals.all()]
    assert 1 <= len(set(meshes)) == len(meshes) <= 3
    assert run.profile.summary["provenance"] == sample.provenance
    experiment.refresh_from_db()
    made = sample.provenance == "reconstructed"  # whoever uploads it, it is not a measurement
    assert (experiment.origin, experiment.label) == (("reconstructed", sample.label) if made else ("uploaded", ""))
    assert experiment.best_speedup is None or experiment.best_speedup > 0


def ingested(people, value, config=CONFIG):
    """A run whose profile was read, at the door of the diagnosis."""
    experiment = make_experiment(people)
    run = runs.newest(experiment)
    configuration.save(experiment, people.engineer, config)
    runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    return run


def test_a_profile_with_nothing_to_price_fails_with_a_sentence_about_it(people):
    empty = dataclasses.replace(step_profile(1), ops=(), steps=(), step_time_s=None, kpis={})
    run = ingested(people, empty)
    coordinator.advance(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED
    assert "Internal error" not in run.reason
    assert DiagnosisRecord.objects.filter(run=run).exists()  # what can be said is said


def test_a_configuration_changed_under_the_worker_ends_its_work_and_keeps_nothing_of_it(people):
    run = ingested(people, step_profile())
    held = runs.claim(run.pk, "slow worker")
    work = coordinator.Work(held, "slow worker")
    assert work.diagnosis.bottleneck  # computed, not yet stored
    changed = {**CONFIG, "training": {**CONFIG["training"], "global_batch": 64}}
    configuration.save(run.experiment, people.engineer, changed)
    with pytest.raises(coordinator.OwnershipLost):
        coordinator._diagnose(work)
    assert DiagnosisRecord.objects.count() == 0
    newer = runs.newest(run.experiment)
    assert newer.pk != run.pk
    coordinator.advance(newer.pk)
    newer.refresh_from_db()
    assert newer.status == RunStatus.READY, newer.reason


def test_a_fault_of_ours_fails_the_run_loudly_and_a_retry_goes_on_from_there(people):
    run = ingested(people, step_profile())
    run.profile.refresh_from_db()
    from experiments.services import storage

    stored = storage.absolute(run.profile.data)
    good = stored.read_bytes()
    stored.write_bytes(b"not gzip")  # a disk that lies
    with pytest.raises(OSError, match="gzip"):
        coordinator.advance(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED
    assert "Internal error while diagnosing" in run.reason
    assert run.failed_at == RunStatus.DIAGNOSING
    stored.write_bytes(good)
    again = runs.retry(run, people.engineer)
    assert again.status == RunStatus.DIAGNOSING
    coordinator.advance(again.pk)
    again.refresh_from_db()
    assert again.status == RunStatus.READY, again.reason


def test_a_finished_run_is_left_alone(people):
    run = ingested(people, step_profile())
    coordinator.advance(run.pk)
    before = Event.objects.count()
    coordinator.advance(run.pk)
    coordinator.advance(10**9)
    assert Event.objects.count() == before
    assert Run.objects.get(pk=run.pk).worker == ""
