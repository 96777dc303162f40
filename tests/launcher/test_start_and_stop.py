"""`asap run` as a new user meets it, with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def second(module_home: Path) -> Iterator[Application]:
    """The second start on a data folder, by whoever runs the tests, while another program has port 8000."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # someone else has it, which is all we need
        with running(module_home) as application:
            assert eventually(application.is_ready)
            yield application


def test_a_second_start_does_only_what_is_needed_and_keeps_the_data(
    second: Application, first_start: Application
) -> None:
    assert "database schema" not in second.text
    assert _query(second.home, "select count(*) from accounts_user") == 1
    assert (second.home / "secret_key").read_text() == (first_start.home / "secret_key").read_text()


def test_a_second_run_on_the_same_data_names_the_first(second: Application) -> None:
    sentence = refused(second.home)
    assert second.address in sentence
    assert "ASAP_HOME" in sentence
    assert second.is_ready()


def test_without_a_wish_the_next_free_port_is_taken(second: Application) -> None:
    assert not second.address.endswith(":8000")
    assert "Port 8000 is in use" in second.text


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_root_does_not_run_the_database_as_root(second: Application) -> None:
    assert Path(f"/proc/{second.main_process('PostgreSQL')}").stat().st_uid != 0


def test_a_closed_terminal_ends_it_too(used_home: Path) -> None:
    application = Application(used_home)
    assert application.stop(signal.SIGHUP) == 0
    assert processes_of(used_home) == []


def test_a_killed_launcher_leaves_no_process_and_the_next_start_works(used_home: Path) -> None:
    application = Application(used_home)
    application.process.kill()
    application.process.communicate()
    assert eventually(lambda: not processes_of(used_home), within_s=90), processes_of(used_home)
    with running(used_home) as again:
        assert eventually(again.is_ready)
        assert again.stop(signal.SIGTERM) == 0
    assert processes_of(used_home) == []


def _query(home: Path, statement: str) -> object:
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]
