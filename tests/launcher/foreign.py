"""Servers as an operator runs them: over TCP, with passwords.  PostgreSQL with pgvector, or Debian's own without."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from asapweb.launcher.postgres import UNPRIVILEGED_USER, place_cluster

REDIS = Path("/usr/bin/redis-server")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def missing(what: str) -> None:
    """Skip where the package is absent; in CI, which installs it, that is a failure."""
    if os.environ.get("ASAP_CI") == "1":
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed (apt-get install {what})")


@contextmanager
def postgresql_over_tcp(folder: Path, binaries: Path, *, prepared: bool = False) -> Iterator[str]:
    """A PostgreSQL with a database that belongs to an ordinary role; yields its URL.

    prepared: an administrator has created the extension `vector` in it.
    """
    data, port = folder / "foreign", free_port()
    as_user = ["setpriv", f"--reuid={UNPRIVILEGED_USER}", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    data.mkdir(mode=0o700)
    password = folder / "password"
    password.write_text("postgres secret")
    if as_user:
        for path in (data, password):
            os.chown(path, 65534, 65534)
    subprocess.run(
        [*as_user, binaries / "initdb", "-D", data, "-U", "postgres", "--auth=scram-sha-256", "--pwfile", password,
         "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"],
        check=True, capture_output=True, cwd="/",
    )  # fmt: skip
    server = subprocess.Popen(
        [*(as_user or ["setpriv"]), "--pdeathsig", "INT", "--", binaries / "postgres", "-D", data, "-p", str(port),
         "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}", "-c", "fsync=off"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    try:
        with _connected(port) as connection:
            connection.execute("create role asap login password 'top secret/@:'")
            connection.execute("create database asap owner asap")
        if prepared:
            with _connected(port, "asap") as connection:
                connection.execute("create extension vector")
        yield f"postgresql://asap:top%20secret%2F%40%3A@127.0.0.1:{port}/asap"
    finally:
        server.terminate()
        server.wait(30)


def with_pgvector(folder: Path) -> Path:
    """The binaries of a PostgreSQL that has the extension: those of our own wheel."""
    return place_cluster(folder, folder / "log").binaries


def of_debian() -> Path:
    """The distribution's, which has not."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not versions:
        missing("postgresql")
    return versions[-1].parent


def _connected(port: int, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
    deadline = time.monotonic() + 30
    while True:
        try:
            return psycopg.connect(
                host="127.0.0.1",
                port=port,
                user="postgres",
                password="postgres secret",
                dbname=database,
                autocommit=True,
            )
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def redis_over_tcp(folder: Path) -> Iterator[str]:
    """A Redis of the distribution with a password; yields its URL."""
    if not REDIS.exists():
        missing("redis-server")
    port = free_port()
    server = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", REDIS, "--port", str(port), "--bind", "127.0.0.1",
         "--requirepass", "secret", "--dir", folder, "--save", ""],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"redis://:secret@127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(30)
