"""DATABASE_URL and CELERY_BROKER_URL replace the embedded services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.launcher.application import eventually, refused, running
from tests.launcher.foreign import free_port, of_debian, postgresql_over_tcp, redis_over_tcp, with_pgvector


def test_postgresql_and_redis_over_tcp(folder: Path) -> None:
    home = folder / "data"
    binaries = with_pgvector(folder)
    with postgresql_over_tcp(folder, binaries, prepared=True) as database, redis_over_tcp(folder) as broker:
        variables = {"DATABASE_URL": database, "CELERY_BROKER_URL": broker}
        with running(home, **variables) as application:
            assert "PostgreSQL " not in application.text
            assert "Redis " not in application.text
            states = json.loads(application.get("/healthz")[1])
            assert states == {"status": "ok", "database": "ok", "broker": "ok", "disk": "ok"}
            # The worker's own first task came through that broker, and found that database.
            log = home / "logs" / "worker.log"
            assert eventually(lambda: "jobs.tasks.sweep" in log.read_text() and "succeeded" in log.read_text())
        with psycopg.connect(database) as connection:
            assert connection.execute("select count(*) from accounts_user").fetchone() == (1,)
            found = connection.execute("select count(*) from knowledge_passage where search @@ 'gather'::tsquery")
            assert found.fetchone()[0] > 0
    assert not (home / "postgres").exists()
    assert "secret" not in application.text


@pytest.mark.nightly
def test_a_postgresql_without_pgvector_says_what_to_install(folder: Path) -> None:
    with postgresql_over_tcp(folder, of_debian()) as database:
        sentence = refused(folder, DATABASE_URL=database, CELERY_BROKER_URL="memory://")
    assert "pgvector 0.8 or newer" in sentence and "install it" in sentence
    assert "secret" not in sentence


def test_an_extension_that_the_role_may_not_create_is_asked_of_an_administrator(folder: Path) -> None:
    with postgresql_over_tcp(folder, with_pgvector(folder)) as database:
        sentence = refused(folder, DATABASE_URL=database, CELERY_BROKER_URL="memory://")
        assert "CREATE EXTENSION vector in the database asap" in sentence and "role asap" in sentence
        environment = {**os.environ, "ASAP_HOME": str(folder / "data"), "DATABASE_URL": database}
        migrating = [sys.executable, "-W", "ignore", "manage.py", "migrate"]
        by_hand = subprocess.run(migrating, env=environment, capture_output=True, text=True)
        with psycopg.connect(database) as connection:
            applied = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
    assert by_hand.returncode == 1
    assert by_hand.stderr.strip().splitlines()[-1].startswith("CommandError: ASAP Web needs")
    assert applied == []


@pytest.mark.nightly
def test_a_database_that_is_not_there(folder: Path) -> None:
    url = f"postgresql://asap:hidden@127.0.0.1:{free_port()}/asap"
    sentence = refused(folder, DATABASE_URL=url, CELERY_BROKER_URL="memory://")
    assert "DATABASE_URL" in sentence
    assert "hidden" not in sentence


@pytest.mark.nightly
def test_a_broker_that_is_not_there(folder: Path) -> None:
    sentence = refused(folder, CELERY_BROKER_URL=f"redis://:hidden@127.0.0.1:{free_port()}/0")
    assert "CELERY_BROKER_URL" in sentence
    assert "hidden" not in sentence


def test_addresses_that_are_none(folder: Path) -> None:
    assert "DATABASE_URL" in refused(folder, DATABASE_URL="nonsense")
    assert "CELERY_BROKER_URL" in refused(folder, CELERY_BROKER_URL="nonsense://x")
