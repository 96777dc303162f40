"""A piece killed at any moment is started again by the launcher, and what was stored is still there."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from asapweb.launcher.postgres import LONGEST_SOCKET_FOLDER
from tests.launcher.application import Application, copied, eventually, processes_of, running

PIECES = ("PostgreSQL", "Redis", "worker", "answerer", "web server")


@pytest.fixture(scope="module")
def application(first_start: Application) -> Iterator[Application]:
    """Start after a web server that was killed."""
    with copied(first_start.home) as home:
        _half_received(home).write_bytes(b"x" * 1000)
        with running(home) as started:
            yield started


def test_half_received_uploads_go_with_the_next_start_of_the_web_server(application: Application) -> None:
    left = _half_received(application.home)
    assert not left.exists()
    left.write_bytes(b"x" * 1000)
    os.kill(application.main_process("web server"), signal.SIGKILL)
    assert eventually(lambda: not left.exists())
    assert eventually(application.is_ready)


def test_a_message_that_a_killed_redis_had_accepted_is_delivered(application: Application) -> None:
    os.kill(application.main_process("worker"), signal.SIGSTOP)
    _redis(application.home, "RPUSH kept-queue message")
    os.kill(application.main_process("Redis"), signal.SIGKILL)
    assert eventually(lambda: _redis(application.home, "LRANGE kept-queue 0 -1").count("message") >= 1)
    _redis(application.home, "DEL kept-queue")
    os.kill(application.main_process("worker"), signal.SIGCONT)


def test_killed_pieces_are_started_again(application: Application) -> None:
    for piece in PIECES:
        _remember(application.home, piece)
        # The answerer may still be coming back from the kill before.
        assert eventually(lambda piece=piece: _runs_anew(application, piece, 0)), piece
        first = application.main_process(piece)
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda piece=piece, first=first: _runs_anew(application, piece, first)), piece
        assert eventually(application.is_ready), piece
        now = time.time()
        assert eventually(lambda now=now: _worker_consumes(application.home, since=now)), piece
        assert _remembers(application.home, piece)
        said = f"{piece} was killed by signal 9: restarting"
        assert eventually(lambda said=said: said in application.text), application.text


def test_a_killed_launcher_leaves_no_process_and_the_next_start_works(first_start: Application, folder: Path) -> None:
    """Two starts on a folder whose path is longer than the address of a socket may be, listening on IPv6 where this
    machine has it."""
    home = folder / ("long-" * 20) / ("longer-" * 10)
    assert len(str(home)) > LONGEST_SOCKET_FOLDER
    home.parent.mkdir()
    with copied(first_start.home) as copy:
        copy.rename(home)
    host = "::1" if Path("/proc/net/if_inet6").exists() else "127.0.0.1"
    killed = Application(home, "--host", host)
    assert killed.address.startswith("http://[::1]:" if host == "::1" else "http://127")
    killed.process.kill()
    killed.process.wait()
    assert eventually(lambda: not processes_of(home), within_s=90), processes_of(home)
    with running(home) as again:
        assert eventually(again.is_ready)
        assert again.stop(signal.SIGHUP) == 0  # a closed terminal
    assert processes_of(home) == []


def _half_received(home: Path) -> Path:
    return home / "uploading" / "tmpabc.upload"


def _runs_anew(application: Application, piece: str, first: int) -> bool:
    try:
        return application.main_process(piece) != first
    except (AssertionError, OSError):
        return False


def _worker_consumes(home: Path, since: float) -> bool:
    """It touches this file only while it is connected to its broker."""
    heartbeat = home / "run" / "worker.alive"
    return heartbeat.exists() and heartbeat.stat().st_mtime > since


def _remember(home: Path, text: str) -> None:
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        connection.execute("create table if not exists remembered (text text)")
        connection.execute("insert into remembered values (%s)", [text])


def _remembers(home: Path, text: str) -> bool:
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        return connection.execute("select 1 from remembered where text = %s", [text]).fetchone() is not None


def _redis(home: Path, command: str) -> str:
    """One inline command; empty where the server does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(home / "redis" / "redis.sock"))
            connection.sendall(command.encode() + b"\r\n")
            return connection.recv(4096).decode()
    except OSError:
        return ""
