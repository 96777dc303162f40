"""Metrics: what they say of the jobs and the disk, and who reads them."""

from __future__ import annotations

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from dialogue.services import asking
from tests.dialogue.answerers import model_set_up


@pytest.fixture
def scrape(settings):
    settings.METRICS_TOKEN = "a token of the operator"

    def ask(token="a token of the operator"):
        return Client().get("/metrics", headers={"Authorization": f"Bearer {token}"})

    return ask


def samples(answer):
    families = text_string_to_metric_families(answer.content.decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_metrics_count_jobs_by_kind_and_status(ready, scrape):
    before = samples(scrape())
    thread = asking.open_thread(ready.experiment, ready.experiment.created_by)
    with model_set_up():
        asking.ask(thread, ready.experiment.created_by, "Why is it slow?")
    after = samples(scrape())
    assert before["asap_jobs", "experiments.run", "ready"] == after["asap_jobs", "experiments.run", "ready"] == 1
    assert ("asap_jobs", "dialogue.message", "queued") not in before
    assert after["asap_jobs", "dialogue.message", "queued"] == 1
    assert 0 < after["asap_job_oldest_wait_seconds", "dialogue.message"] < 60
    assert after["asap_job_oldest_wait_seconds", "experiments.run"] == 0


def test_metrics_say_what_is_degraded(db, scrape, monkeypatch):
    assert samples(scrape())["asap_ok", "disk"] == 1
    monkeypatch.setenv("ASAP_KEEP_FREE_MB", "1e12")
    found = samples(scrape())
    assert (found["asap_ok", "disk"], found["asap_ok", "database"]) == (0, 1)
    assert 0 < found["asap_disk_free_bytes",] < found["asap_disk_reserve_bytes",] == 1e18


def test_wrong_passwords_are_counted(db, scrape):
    for _ in range(3):
        Client().post("/sign-in/", {"username": "nobody", "password": "wrong"})
    assert samples(scrape())["asap_wrong_passwords",] == 3


def test_metrics_are_refused_without_the_token(db, scrape, settings):
    assert [scrape(token).status_code for token in ("", "another", "a token of the operato²")] == [401] * 3
    assert Client().get("/metrics").status_code == 401
    settings.METRICS_TOKEN = ""
    assert scrape("").status_code == 404
