"""`asap run` as a new user meets it, with real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest

from tests.launcher.application import Application, eventually, processes_of, refused, running


def test_first_start_brings_everything_up_and_prints_one_link(first_start: Application) -> None:
    for part in ("PostgreSQL", "Redis", "worker", "answerer", "web server"):
        assert f"{part} " in first_start.text
    assert "database schema" in first_start.text
    assert first_start.text.count("/sign-in/") == 1
    status, body = first_start.readyz  # type: ignore[attr-defined]
    assert (status, json.loads(body)) == (200, {"database": "ok", "broker": "ok", "disk": "ok"})


def test_the_printed_link_leads_to_a_page(first_start: Application) -> None:
    status, body = first_start.sign_in_page  # type: ignore[attr-defined]
    assert status == 200
    assert "<html" in body


def test_ctrl_c_ends_everything_in_order(first_start: Application) -> None:
    assert first_start.process.returncode == 0
    assert "Traceback" not in first_start.text
    assert processes_of(first_start.home) == []
    assert not (first_start.home / "postgres" / "postmaster.pid").exists()


def test_a_second_start_does_only_what_is_needed_and_keeps_the_data(used_home: Path) -> None:
    key = (used_home / "secret_key").read_text()
    with running(used_home) as application:
        assert "database schema" not in application.text
        users = _query(used_home, "select count(*) from accounts_user")
    assert users == 1
    assert (used_home / "secret_key").read_text() == key


def test_a_second_run_on_the_same_data_names_the_first(used_home: Path) -> None:
    with running(used_home) as application:
        sentence = refused(used_home)
        assert application.address in sentence
        assert "ASAP_HOME" in sentence
        assert eventually(application.is_ready)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_orderly_signals_end_it_too(used_home: Path, number: signal.Signals) -> None:
    application = Application(used_home)
    assert application.stop(number) == 0
    assert processes_of(used_home) == []


def test_a_killed_launcher_leaves_no_process_and_the_next_start_works(used_home: Path) -> None:
    application = Application(used_home)
    application.process.kill()
    application.process.communicate()
    assert eventually(lambda: not processes_of(used_home), within_s=90), processes_of(used_home)
    with running(used_home) as again:
        assert eventually(again.is_ready)


def _query(home: Path, statement: str) -> object:
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]
