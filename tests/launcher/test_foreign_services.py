"""DATABASE_URL and CELERY_BROKER_URL replace the embedded services."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from tests.launcher.application import eventually, refused, running
from tests.launcher.foreign import free_port, postgresql_over_tcp, redis_over_tcp


def test_debians_postgresql_and_redis_over_tcp(folder: Path) -> None:
    home = folder / "data"
    with postgresql_over_tcp(folder) as database, redis_over_tcp(folder) as broker:
        variables = {"DATABASE_URL": database, "CELERY_BROKER_URL": broker}
        with running(home, **variables) as application:
            assert "PostgreSQL " not in application.text
            assert "Redis " not in application.text
            assert json.loads(application.get("/readyz")[1]) == {"database": "ok", "broker": "ok"}
            # The worker's own first task came through that broker, and found that database.
            log = home / "logs" / "worker.log"
            assert eventually(lambda: "take_over_stale" in log.read_text() and "succeeded" in log.read_text())
        with psycopg.connect(database) as connection:
            assert connection.execute("select count(*) from accounts_user").fetchone() == (1,)
        with running(home, **variables) as again:
            assert "database schema" not in again.text
            assert again.is_ready()
    assert not (home / "postgres").exists()
    assert "secret" not in application.text


def test_a_database_that_is_not_there(folder: Path) -> None:
    url = f"postgresql://asap:hidden@127.0.0.1:{free_port()}/asap"
    sentence = refused(folder, DATABASE_URL=url, CELERY_BROKER_URL="memory://")
    assert "DATABASE_URL" in sentence
    assert "hidden" not in sentence


def test_a_broker_that_is_not_there(folder: Path) -> None:
    sentence = refused(folder, CELERY_BROKER_URL=f"redis://:hidden@127.0.0.1:{free_port()}/0")
    assert "CELERY_BROKER_URL" in sentence
    assert "hidden" not in sentence


def test_addresses_that_are_none(folder: Path) -> None:
    assert "DATABASE_URL" in refused(folder, DATABASE_URL="mysql://asap@localhost/asap")
    assert "DATABASE_URL" in refused(folder, DATABASE_URL="nonsense")
    assert "CELERY_BROKER_URL" in refused(folder, CELERY_BROKER_URL="nonsense://x")
