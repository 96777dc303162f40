"""`asap run` as a new user meets it, with real processes."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import psycopg
import pytest

from tests.launcher.application import Application, processes_of, refused


def test_first_start_brings_everything_up_and_prints_one_link(first_start: Application) -> None:
    for part in ("PostgreSQL", "Redis", "worker", "answerer", "web server"):
        assert f"{part} " in first_start.text
    assert "database schema" in first_start.text
    assert first_start.text.count("/sign-in/") == 1
    assert "manage.py sign_in_link " in first_start.text
    status, body = first_start.healthz  # type: ignore[attr-defined]
    assert (status, json.loads(body)) == (200, {"status": "ok", "database": "ok", "broker": "ok", "disk": "ok"})


def test_the_printed_link_leads_to_a_page(first_start: Application) -> None:
    status, body = first_start.sign_in_page  # type: ignore[attr-defined]
    assert status == 200
    assert "<html" in body


def test_all_of_it_runs_as_the_user_who_starts_it_in_a_folder_of_their_own(
    first_start: Application, unprivileged: str | None
) -> None:
    user = pwd.getpwnam(unprivileged).pw_uid if unprivileged else os.getuid()
    assert first_start.owners == {user}  # type: ignore[attr-defined]
    assert first_start.mode & 0o077 == 0  # type: ignore[attr-defined]


def test_ctrl_c_ends_everything_in_order(first_start: Application) -> None:
    assert first_start.process.returncode == 0
    assert "Traceback" not in first_start.text
    assert processes_of(first_start.home) == []
    assert not (first_start.home / "postgres" / "postmaster.pid").exists()


def test_a_second_start_does_only_what_is_needed_and_keeps_the_data(
    application: Application, first_start: Application
) -> None:
    assert "database schema" not in application.text
    assert _query(application.home, "select count(*) from accounts_user") == 1
    assert (application.home / "secret_key").read_text() == (first_start.home / "secret_key").read_text()


def test_a_second_run_on_the_same_data_names_the_first(application: Application) -> None:
    sentence = refused(application.home)
    assert application.address in sentence
    assert "ASAP_HOME" in sentence
    assert application.is_ready()


def test_without_a_wish_the_next_free_port_is_taken(application: Application) -> None:
    assert not application.address.endswith(":8000")
    assert "Port 8000 is in use" in application.text


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_root_does_not_run_the_database_as_root(application: Application) -> None:
    assert Path(f"/proc/{application.main_process('PostgreSQL')}").stat().st_uid != 0


def _query(home: Path, statement: str) -> object:
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]
