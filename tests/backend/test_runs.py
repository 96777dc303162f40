from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from math import prod
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from experiments.consistency import topology
from experiments.models import Event, Run, RunStatus
from experiments.services import configuration, events, profiles, runs, uploads
from jobs import workers
from jobs.jobs import STALE_AFTER
from tests.backend.broker import broker
from tests.backend.factories import CONFIG, make_experiment, make_people, make_ready, step_profile, upload
from tests.backend.threads import in_threads


def test_a_move_happens_once_and_with_its_event(people):
    run = runs.newest(make_experiment(people))
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator", why="test")
    before = Event.objects.count()
    assert not runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    assert Event.objects.count() == before
    event = Event.objects.last()
    assert event.data == {"from": "uploaded", "to": "ingesting", "why": "test"}
    run.experiment.refresh_from_db()
    assert run.experiment.state == RunStatus.INGESTING


@pytest.mark.django_db(transaction=True)
def test_of_many_movers_one_wins():
    run = runs.newest(make_experiment(make_people()))
    moved = in_threads(8, lambda _: runs.move(Run.objects.get(pk=run.pk), "uploaded", "ingesting", actor="coordinator"))
    assert sorted(moved) == [False] * 7 + [True]
    assert Event.objects.filter(data__to="ingesting").count() == 1


def test_a_run_is_claimed_by_one_worker_and_again_when_it_falls_silent(people, settings):
    run = runs.newest(make_experiment(people))
    assert runs.claim(run.pk, "first").worker == "first"
    assert runs.claim(run.pk, "second") is None
    Run.objects.update(heartbeat_at=timezone.now() - STALE_AFTER - timedelta(seconds=1))
    taken = runs.claim(run.pk, "second")
    assert (taken.worker, taken.attempts) == ("second", 2)
    assert not runs.RUNS.beat(run.pk, "first")
    assert runs.RUNS.beat(run.pk, "second")


@pytest.mark.django_db(transaction=True)
def test_of_many_claimants_one_gets_the_run():
    run = runs.newest(make_experiment(make_people()))
    claimed = in_threads(8, lambda n: runs.claim(run.pk, f"worker {n}"))
    assert len([c for c in claimed if c is not None]) == 1


def test_a_worker_that_lost_its_run_cannot_move_it(people):
    run = runs.newest(make_experiment(people))
    held = runs.claim(run.pk, "first")
    Run.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
    runs.claim(run.pk, "second")
    assert not runs.move(held, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator", worker="first")
    assert not runs.fail(held, "too late", worker="first")
    run.refresh_from_db()
    assert run.status == RunStatus.UPLOADED


def test_a_dead_process_of_this_machine_is_known_at_once():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        name = workers.this_process().split("/")
        stat = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        of_child = "/".join([name[0], name[1], str(child.pid), stat])
        assert not workers.is_known_dead(of_child)
        reused = "/".join([name[0], name[1], str(child.pid), "1"])
        assert workers.is_known_dead(reused)
    finally:
        child.kill()
    child.wait()
    assert workers.is_known_dead(of_child)
    assert not workers.is_known_dead("/".join(["elsewhere", name[1], str(child.pid), stat]))
    assert not workers.is_known_dead(workers.this_process())
    assert not workers.is_known_dead("nonsense")


def test_a_run_that_kills_its_workers_fails_with_a_sentence(people):
    run = runs.newest(make_experiment(people))
    for n in range(runs.RUNS.most_attempts):
        assert runs.claim(run.pk, f"worker {n}") is not None
        Run.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
    assert runs.claim(run.pk, "the last") is None
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED
    assert "more memory" in run.reason


@pytest.mark.django_db(transaction=True)
def test_the_sweep_finds_what_nobody_has_and_leaves_the_rest():
    people = make_people()
    held, dead, lost, _fresh, waiting, done = (runs.newest(make_experiment(people, str(n))) for n in range(6))
    now = timezone.now()
    Run.objects.filter(pk=held.pk).update(worker="alive", heartbeat_at=now)
    Run.objects.filter(pk=dead.pk).update(worker="dead", heartbeat_at=now - timedelta(minutes=5))
    Run.objects.filter(pk=lost.pk).update(created_at=now - timedelta(minutes=5))
    Run.objects.filter(pk=waiting.pk).update(status="configuring", created_at=now - timedelta(days=5))
    Run.objects.filter(pk=done.pk).update(status="ready", created_at=now - timedelta(days=5))
    assert set(runs.RUNS.sweep()) == {dead.pk, lost.pk}
    assert runs.RUNS.sweep() == []  # they are on their way; not queued again at every sweep
    dead.refresh_from_db()
    assert dead.worker == ""


def test_a_failed_run_is_retried_once_from_what_was_read(people):
    experiment = make_experiment(people)
    run = runs.newest(experiment)
    with pytest.raises(runs.RunError, match="has not failed"):
        runs.retry(run, people.engineer)
    runs.fail(run, "The file is cut off; upload it again.")
    again = runs.retry(run, people.engineer)
    assert again.status == RunStatus.UPLOADED
    with pytest.raises(runs.RunError, match="newer analysis"):
        runs.retry(run, people.engineer)
    profiles.store(again.profile, step_profile(), profiles.write(again, step_profile()))
    runs.fail(again, "later")
    assert runs.retry(again, people.engineer).status == RunStatus.DIAGNOSING


def test_a_stored_profile_comes_back_as_it_was(people):
    run = runs.newest(make_experiment(people))
    value = step_profile(50)
    profiles.store(run.profile, value, profiles.write(run, value))
    run.profile.refresh_from_db()
    assert profiles.load(run.profile) == value
    assert run.profile.summary["op_count"] == 50


def test_a_saved_configuration_sends_a_waiting_run_on(people):
    experiment = make_experiment(people, config=False)
    run = runs.newest(experiment)
    runs.move(run, RunStatus.UPLOADED, RunStatus.CONFIGURING, actor="coordinator")
    wrong = configuration.save(experiment, people.engineer, {**CONFIG, "mesh": {"ici": {"data": 3}}})
    assert "mesh.ici" in wrong.errors
    experiment.refresh_from_db()
    assert experiment.config is None
    assert configuration.save(experiment, people.engineer, CONFIG).ok
    run.refresh_from_db()
    assert run.status == RunStatus.DIAGNOSING
    assert run.experiment.chip == "v6e"


def test_a_changed_configuration_starts_a_new_analysis_and_the_same_one_does_not(people):
    ready = make_ready(people)
    configuration.save(ready.experiment, people.engineer, CONFIG)
    assert runs.newest(ready.experiment) == ready.run
    changed = {**CONFIG, "training": {**CONFIG["training"], "global_batch": 64}}
    configuration.save(ready.experiment, people.engineer, changed)
    again = runs.newest(ready.experiment)
    assert again != ready.run
    assert again.status == RunStatus.DIAGNOSING
    changed["training"]["global_batch"] = 128
    configuration.save(ready.experiment, people.engineer, changed)
    again.refresh_from_db()
    assert again.status == RunStatus.FAILED
    assert "configuration changed" in again.reason
    assert runs.newest(ready.experiment).status == RunStatus.DIAGNOSING


def test_the_order_of_the_axes_is_kept_and_another_order_is_another_configuration(people):
    ready = make_ready(people)
    mesh = {"ici": {"seq": 4, "data": 4}, "dcn": {"data": 1}}
    configuration.save(ready.experiment, people.engineer, {**CONFIG, "mesh": mesh})
    turned = {"ici": {"data": 4, "seq": 4}, "dcn": {"data": 1}}
    first = runs.newest(ready.experiment)
    configuration.save(ready.experiment, people.engineer, {**CONFIG, "mesh": turned})
    assert runs.newest(ready.experiment) != first
    ready.experiment.refresh_from_db()
    assert list(ready.experiment.config["mesh"]["ici"]) == list(ready.experiment.mesh["ici"]) == ["data", "seq"]
    assert configuration.load(ready.experiment).mesh.ici == (("data", 4), ("seq", 4))
    given = Event.objects.filter(kind="config").last().data
    assert given["mesh"] == "data 4 · seq 4"
    assert list(given["config"]["mesh"]["ici"]) == ["data", "seq"]


def test_the_form_is_prefilled_with_what_the_profile_tells(people):
    run = runs.newest(make_experiment(people, config=False))
    profiles.store(run.profile, step_profile(), profiles.write(run, step_profile()))
    found = configuration.prefill(run.profile)
    data = found.data
    assert data["hardware"] == {"chip": "v6e", "topology": [4, 4], "slices": 1}
    assert data["mesh"] == {"ici": {"data": 16}}
    assert configuration.check(data).ok
    assert found.marks["hardware.chip"].by == "from profile"
    assert "TPU v6 lite" in found.marks["hardware.chip"].why
    assert found.marks["mesh.ici"].by == "suggested"


def test_a_name_changed_in_the_configuration_is_the_experiments(people):
    experiment = make_experiment(people)
    configuration.save(experiment, people.engineer, {**CONFIG, "name": "as it was"})
    experiment.name = "called otherwise"
    experiment.save()
    configuration.save(experiment, people.engineer, {**CONFIG, "name": "as it was", "notes": "new"})
    assert experiment.name == "called otherwise"
    configuration.save(experiment, people.engineer, {**CONFIG, "name": "named \u202e anew"})
    assert experiment.name == "named   anew"


@pytest.mark.parametrize(("count", "dimensions"), [(16, 2), (64, 3), (12, 2), (7, 3), (1, 2), (96, 3), (256, 1)])
def test_a_guessed_topology_holds_all_chips(count, dimensions):
    found = topology.near_cube(count, dimensions)
    assert prod(found) == count
    assert len(found) == dimensions
    longer = [size for size in found if size > 1]
    assert found == sorted(longer) + [1] * (dimensions - len(longer))


@pytest.mark.parametrize(("count", "dims"), [(4, [2, 2, 1]), (128, [4, 4, 8]), (512, [8, 8, 8]), (8, [2, 2, 2])])
def test_a_guessed_topology_is_the_compact_one(count, dims):
    assert topology.near_cube(count, 3) == dims


def test_events_are_appended_and_never_changed(people):
    experiment = make_experiment(people)
    event = events.append(experiment, "progress", "worker", data={"text": "<b>bold</b>"})
    event.data = {}
    with pytest.raises(TypeError, match="never changed"):
        event.save()
    assert [e.pk for e in events.after(experiment, event.pk - 1)] == [event.pk]


@pytest.mark.django_db(transaction=True)
def test_a_reader_never_passes_an_event_that_is_not_committed_yet():
    people = make_people()
    experiment = make_experiment(people)
    seen = []
    done = threading.Event()

    def read():
        last = 0
        while True:
            finished = done.is_set()
            found = [e.pk for e in events.after(experiment.pk, last)]
            seen.extend(found)
            last = max([last, *found])
            if finished:
                break
        connection.close()

    reader = threading.Thread(target=read)
    reader.start()
    in_threads(6, lambda n: [events.append(experiment.pk, "progress", "worker", data={"n": n}) for _ in range(20)])
    done.set()
    reader.join()
    assert seen == [e.pk for e in events.after(experiment.pk)]


@pytest.mark.slow
def test_uploading_without_a_broker_keeps_the_run_for_the_sweep(people, django_capture_on_commit_callbacks, caplog):
    with broker("redis://127.0.0.1:1/0"), django_capture_on_commit_callbacks(execute=True):
        experiment = uploads.receive(people.team, people.engineer, [upload()])
    assert runs.newest(experiment).status == RunStatus.UPLOADED
    assert "broker cannot be reached" in caplog.text
