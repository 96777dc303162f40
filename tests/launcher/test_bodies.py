"""What strangers may send, over real sockets: bounded before it is taken, and not kept outside of our own folder."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from asapweb.body_limit import ANY_LENGTH_S, ANYBODY_BYTES, IDLE_S
from tests.launcher.application import Application
from tests.launcher.visitor import Visitor

FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


def connect(application: Application, head: str) -> socket.socket:
    place = urlsplit(application.address)
    connection = socket.create_connection((place.hostname or "", place.port or 0), timeout=90)
    connection.sendall(f"{head}\r\nHost: 127.0.0.1\r\n".encode())
    return connection


def answer(connection: socket.socket) -> str:
    received = b""
    with suppress(TimeoutError, ConnectionResetError):
        while b"\r\n\r\n" not in received or b"\n" not in received.partition(b"\r\n\r\n")[2]:
            part = connection.recv(65536)
            if not part:
                break
            received += part
    return received.decode(errors="replace")


def processes(application: Application) -> Iterator[Path]:
    """Of this application, by its data folder; others may run beside it."""
    home = f"ASAP_HOME={application.home}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (entry / "environ").read_bytes():
                yield entry


def resident_bytes(application: Application) -> int:
    """Of its web server."""
    total = 0
    for entry in processes(application):
        with suppress(OSError, ValueError, IndexError):
            if b"granian" in (entry / "cmdline").read_bytes():
                total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def deleted_but_open(application: Application) -> int:
    """Bytes of its unnamed files in the system's temporary folder."""
    total = 0
    for link in (link for entry in processes(application) for link in entry.glob("fd/*")):
        with suppress(OSError):
            target = os.readlink(link)
            if target.startswith(tempfile.gettempdir() + "/#") or (
                target.startswith(tempfile.gettempdir()) and target.endswith(" (deleted)")
            ):
                total += link.stat().st_size
    return total


@pytest.mark.nightly(of=5)
@pytest.mark.parametrize("path", ["/sign-in/", "/", "/api/experiments/", "/nowhere"])
@pytest.mark.parametrize("extra", ["", "Authorization: Token abc\r\n", "Cookie: sessionid=abc\r\n"])
def test_a_stranger_s_large_body_is_refused_before_it_is_sent(application: Application, path: str, extra: str) -> None:
    head = f"Content-Length: 400000000\r\nExpect: 100-continue\r\n{extra}\r\n"
    with connect(application, f"POST {path} HTTP/1.1") as connection:
        connection.sendall(head.encode())
        said = answer(connection)
    assert said.startswith("HTTP/1.1 401"), said
    assert "Sign in or send a valid API token" in said


def test_a_stranger_s_endless_body_in_pieces_takes_neither_disk_nor_memory(application: Application) -> None:
    before_memory, before_disk = resident_bytes(application), deleted_but_open(application)
    assert before_memory > 0
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    largest_disk, sent = 0, 0
    with connect(application, "POST /sign-in/ HTTP/1.1") as connection:
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):
            while sent < 300:
                connection.sendall(piece)
                sent += 1
                if sent % 20 == 0:
                    largest_disk = max(largest_disk, deleted_but_open(application) - before_disk)
        said = answer(connection)
    assert sent < 100
    assert said == "" or said.startswith("HTTP/1.1 401"), said
    assert largest_disk < 5_000_000
    assert resident_bytes(application) - before_memory < 60_000_000
    assert not list((application.home / "uploading").iterdir())


@pytest.mark.nightly
def test_bodies_that_come_by_drops_are_given_up_and_others_are_served_meanwhile(application: Application) -> None:
    began = time.monotonic()
    said: dict[str, tuple[float, str]] = {}

    def send(name: str, drop_every_s: float | None) -> None:
        with connect(application, "POST /sign-in/ HTTP/1.1") as connection:
            connection.sendall(
                b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\nname="
            )
            deadline = time.monotonic() + ANY_LENGTH_S + 20
            connection.settimeout(drop_every_s or 90)
            received = b""
            while time.monotonic() < deadline and b"\r\n\r\n" not in received:
                try:
                    part = connection.recv(4096)
                    if not part:
                        break
                    received += part
                except TimeoutError:
                    with suppress(OSError):
                        connection.sendall(b"x")
            said[name] = time.monotonic() - began, received.decode(errors="replace")

    threads = [
        threading.Thread(target=send, args=("silent", None)),
        *(threading.Thread(target=send, args=(f"drops {n}", 1.0)) for n in range(20)),
    ]
    for thread in threads:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in threads):
        asked = time.monotonic()
        assert application.get("/livez")[0] == 200
        slowest = max(slowest, time.monotonic() - asked)
        time.sleep(0.5)
    assert slowest < 5
    assert all("HTTP/1.1 408" in text for _, text in said.values()), said
    assert said["silent"][0] < IDLE_S + 15
    assert max(at for at, _ in said.values()) < ANY_LENGTH_S + 15


def test_who_is_signed_in_or_has_a_token_sends_more(application: Application, visitor: Visitor) -> None:
    status, answer = visitor.upload(3 * ANYBODY_BYTES, Accept="application/json")
    assert status == 200 and "location" in json.loads(answer)
    _, page = visitor.post("/settings/tokens/", {})
    token = re.search(r'id="new-token"[^>]*>([^<]+)<', page)
    assert token
    stranger = copy(visitor)
    stranger.cookies = {"none": "1"}
    files = {"host.xplane.pb": os.urandom(3 * ANYBODY_BYTES)}
    status, answer = stranger.post("/api/experiments/", {}, files, Authorization=f"Token {token[1]}")
    assert status == 201, answer
    status, answer = stranger.post("/api/experiments/", {}, files, Authorization=f"Token {token[1][:-1]}")
    assert status == 401 and "valid API token" in json.loads(answer)["detail"]
    assert not list((application.home / "uploading").iterdir())


def test_a_form_of_a_stranger_is_taken(application: Application) -> None:
    body = b"username=a&password=" + b"b" * (ANYBODY_BYTES - 1000)
    with connect(application, "POST /sign-in/ HTTP/1.1") as connection:
        connection.sendall(f"{FORM}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert answer(connection).startswith("HTTP/1.1 403")  # without the form's own token
