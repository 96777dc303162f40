"""A disk without room, as pages, API and workers meet it; with real disks: tests/launcher/test_full_disk."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile
from django.db import OperationalError, connection
from django.test import Client

from asapweb.body_limit import ANYBODY_BYTES, COPIES, BodyLimit
from disk import space
from experiments.models import Experiment, ProfileFile, RunStatus
from experiments.services import leftovers, runs, storage, uploads
from proposals.services import coordinator, reviews


@pytest.fixture
def full(monkeypatch):
    """More is kept free than any disk has."""
    monkeypatch.setenv("ASAP_KEEP_FREE_MB", "1e12")


def file(name="host0.xplane.pb", content=b"\x0a\x00"):
    return SimpleUploadedFile(name, content)


def test_an_upload_is_refused_with_a_sentence_as_page_and_as_json(people, full, data_folder):
    address = "/experiments/new/"
    page = people.client("engineer").post(address, {"files": [file()]})
    assert page.status_code == 507 and "free space" in page.content.decode()
    answer = people.client("engineer").post(address, {"files": [file()]}, headers={"Accept": "application/json"})
    assert answer.status_code == 507 and "B free" in answer.json()["error"]
    answer = people.api("engineer").post("/api/experiments/", {"files": [file()]}, format="multipart")
    assert answer.status_code == 507 and "B free" in answer.json()["detail"] and len(answer.json()["detail"]) <= 300
    assert not Experiment.objects.exists()
    assert not list(data_folder.rglob("*.pb"))


def test_a_document_and_a_file_of_records_are_refused_too(people, full):
    document = file("notes.md", b"# Notes\n\nAll-gather takes time.\n")
    answer = people.api("engineer").post("/api/knowledge/documents/", {"file": document}, format="multipart")
    assert answer.status_code == 507 and "The document needs space" in answer.json()["detail"]
    records = file("r.jsonl", b"{}")
    answer = people.api("engineer").post("/api/history/imports/", {"file": records}, format="multipart")
    assert answer.status_code == 507 and "The file needs space" in answer.json()["detail"]
    document.seek(0)
    page = people.client("engineer").post("/knowledge/documents/", {"file": document})
    assert page.status_code == 507 and "<html" in page.content.decode() and "free space" in page.content.decode()


def test_an_analysis_fails_with_a_reason_and_is_retried_once_there_is_room(people, monkeypatch):
    experiment = uploads.receive(people.team, people.engineer, [file()])
    with monkeypatch.context() as patched:
        patched.setenv("ASAP_KEEP_FREE_MB", "1e12")
        coordinator.advance(runs.newest(experiment).pk)
    run = runs.newest(experiment)
    assert run.status == RunStatus.FAILED and "The analysis needs space" in run.reason
    again = runs.retry(run, people.engineer)
    coordinator.advance(again.pk)
    again.refresh_from_db()
    assert "space" not in again.reason  # two bytes are no profile


def test_reading_and_deciding_go_on(people, ready, full):
    page = people.client("reviewer").get(f"/experiments/{ready.experiment.pk}/")
    assert page.status_code == 200
    reviews.decide(ready.plan.proposals.get(rank=1), people.reviewer, "approved")
    assert people.client("engineer").post(f"/experiments/{ready.experiment.pk}/delete/").status_code in (302, 403)


def test_healthz_says_what_is_wrong(db, full):
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()["status"], answer.json()["database"]) == (200, "degraded", "ok")
    assert "B free" in answer.json()["disk"]


def test_readyz_stays_ready_on_a_full_disk_and_without_a_broker(db, full, settings):
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"database": "ok"})
    assert Client().get("/healthz").json()["broker"] == "no answer"


def test_readyz_refuses_while_the_database_does_not_answer(db, monkeypatch):
    def fail() -> None:
        raise OperationalError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(connection, "cursor", fail)
        answer = Client().get("/readyz")
        alive = Client().get("/livez")
    assert (answer.status_code, answer.json()) == (503, {"database": "no answer"})
    assert alive.status_code == 200


def test_a_large_file_is_kept_without_a_copy(people, settings, data_folder):
    settings.FILE_UPLOAD_TEMP_DIR = str(data_folder)
    received = TemporaryUploadedFile("host0.xplane.pb", "application/octet-stream", 3_000_000, None)
    received.write(b"x" * 3_000_000)
    received.seek(0)
    inode = os.stat(received.temporary_file_path()).st_ino
    experiment = uploads.receive(people.team, people.engineer, [received])
    received.close()
    row = ProfileFile.objects.get(profile__experiment=experiment)
    kept = storage.absolute(row.path)
    assert (kept.stat().st_ino, kept.stat().st_size, row.size_bytes) == (inode, 3_000_000, 3_000_000)


def test_what_nothing_names_is_removed_once_it_is_old(people, ready, data_folder):
    uploads.receive(people.team, people.engineer, [file()])
    named = {storage.absolute(path) for path in leftovers.named()}
    assert named and all(path.is_file() for path in named)
    paths = (
        "uploading/tmp1.upload",
        "uploads/abc/0000.zip",
        "profiles/9-9.json.gz.0.part",
        "documents/d",
        "imports/i/r",
    )
    for path in paths:
        storage.absolute(path).parent.mkdir(parents=True, exist_ok=True)
        storage.absolute(path).write_text("left")
    assert leftovers.remove() == []  # it may still be on its way
    for path in data_folder.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)
    assert sorted(leftovers.find()) == sorted(paths)
    assert sorted(leftovers.remove()) == sorted(paths)
    assert all(path.is_file() for path in named)
    assert storage.absolute("uploading").is_dir()
    assert leftovers.find(timedelta(0)) == []


def test_two_uploads_do_not_both_get_the_last_of_the_space(tmp_path, monkeypatch):
    """Each alone has room; the second is refused while the first is on its way, and taken once it has ended."""
    length = 50_000_000
    kept = space.free_bytes(tmp_path) - int(1.5 * COPIES * length)
    monkeypatch.setenv("ASAP_KEEP_FREE_MB", str(kept / 1e6))
    ended = asyncio.Event()

    async def application(scope, receive, send):
        await receive()
        await ended.wait()
        await send({"type": "http.response.start", "status": 201, "headers": []})

    async def known(scope):
        return True

    async def status_of(limit):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"x", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": "/api/experiments/", "headers": [(b"content-length", str(length).encode())]}
        await limit(scope, receive, send)
        return sent

    async def both():
        limit = BodyLimit(application, 10 * length, tmp_path, known)
        first = asyncio.create_task(status_of(limit))
        await asyncio.sleep(0.05)
        refused = await status_of(limit)
        assert refused[0]["status"] == 507 and "100 MB" in json.loads(refused[1]["body"])["detail"]
        ended.set()
        assert (await first)[0]["status"] == 201
        assert (await status_of(limit))[0]["status"] == 201

    asyncio.run(both())


def test_many_strangers_together_are_bounded(tmp_path):
    waiting = asyncio.Event()

    async def application(scope, receive, send):
        if (await receive())["type"] == "http.request":
            await waiting.wait()

    async def unknown(scope):
        return False

    async def main():
        limit = BodyLimit(application, 10**9, tmp_path, unknown)
        statuses = []

        async def one():
            async def receive():
                await asyncio.sleep(0)
                return {"type": "http.request", "body": b"x" * ANYBODY_BYTES, "more_body": False}

            async def send(message):
                if "status" in message:
                    statuses.append(message["status"])

            await limit({"type": "http", "path": "/sign-in/", "headers": []}, receive, send)

        tasks = [asyncio.create_task(one()) for _ in range(100)]
        while len(statuses) < 36:
            await asyncio.sleep(0.01)
        waiting.set()
        await asyncio.gather(*tasks)
        assert set(statuses) == {503} and len(statuses) == 36

    asyncio.run(asyncio.wait_for(main(), 30))


def test_no_page_needs_the_disk_s_folder_to_be_there(tmp_path: Path):
    assert space.free_bytes(tmp_path / "not" / "there") > 0
