"""Every obstacle to a start is answered by a working start, or by one sentence."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from asapweb.cli import main
from asapweb.launcher import postgres
from asapweb.launcher.address import choose_address
from asapweb.launcher.folders import FIRST_START_BYTES
from asapweb.user_error import UserError
from tests.launcher.application import (
    UNPRIVILEGED,
    command,
    environment,
    in_database,
    processes_of,
    refused,
)

AS_ROOT = os.getuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="needs root to become another user or to mount")


@pytest.fixture
def listener() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def test_a_port_asked_for_and_taken_is_refused(folder: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    sentence = refused(folder, PORT=str(port))
    assert str(port) in sentence
    assert "in use by another program" in sentence
    assert str(port) in refused(folder, "--port", str(port))


def test_two_that_start_together_take_two_ports() -> None:
    """Long before the first one listens, and though its web server would let the other listen beside it."""
    first = choose_address("127.0.0.1", None)
    second = choose_address("127.0.0.1", None)
    assert first.port != second.port and second.moved
    with pytest.raises(UserError, match=f"Port {first.port}"):
        choose_address("127.0.0.1", first.port)
    freed, claim = first.port, first.claim
    assert claim is not None
    claim.close()
    assert choose_address("127.0.0.1", freed).port == freed


def test_no_port_at_all(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "port" in refused(folder, PORT="65536").lower()
    monkeypatch.setenv("ASAP_HOME", str(folder))
    for port in ("0", "http", "-1", "80 80"):
        monkeypatch.setenv("PORT", port)
        assert main(["run"]) == 2
        assert "port" in capsys.readouterr().err.lower()


@pytest.mark.nightly
def test_an_address_that_is_not_ours(folder: Path) -> None:
    assert "192.0.2.1" in refused(folder, "--host", "192.0.2.1")


def test_a_data_folder_that_cannot_be_written(folder: Path, unprivileged: str | None) -> None:
    folder.chmod(0o555)
    sentence = refused(folder / "data", user=unprivileged)
    assert str(folder / "data") in sentence
    assert "ASAP_HOME" in sentence


@pytest.mark.nightly
def test_a_data_folder_where_root_itself_cannot_write() -> None:
    assert "cannot be written" in refused(Path("/proc/asap"))


def test_a_full_disk(folder: Path) -> None:
    size = FIRST_START_BYTES // 4
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a small file system here")
    try:
        sentence = refused(folder / "data")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert f"MB are free on the disk of {folder / 'data'}" in sentence
    assert "ASAP_HOME" in sentence


def test_a_database_of_another_version(folder: Path) -> None:
    data = folder / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("15\n")
    sentence = refused(folder)
    assert "PostgreSQL 15" in sentence
    assert (data / "PG_VERSION").read_text() == "15\n"


@pytest.mark.nightly
def test_a_schema_too_old_to_upgrade(used_home: Path) -> None:
    missing = "('accounts', '0005_token_scope'), ('history', '0002_imports_at_once')"
    in_database(used_home, f"delete from django_migrations where (app, name) in ({missing})")
    sentence = refused(used_home)
    assert "too old for this version" in sentence and "docs/operation.md" in sentence
    assert processes_of(used_home) == []


def test_a_folder_of_something_else_is_not_overwritten(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "thesis.tex").write_text("years of work")
    assert "no PostgreSQL database" in refused(folder)
    assert (folder / "postgres" / "thesis.tex").read_text() == "years of work"


def test_a_damaged_database_is_named_with_its_log(folder: Path, used_home: Path) -> None:
    shutil.copytree(used_home, folder / "data", symlinks=True)
    if AS_ROOT:
        subprocess.run(["chown", "-R", UNPRIVILEGED, str(folder / "data" / "postgres")], check=True)
        (folder / "data").chmod(0o755)
    (folder / "data" / "postgres" / "global" / "pg_control").write_bytes(b"\0" * 8192)
    sentence = refused(folder / "data")
    assert "PostgreSQL does not start" in sentence
    assert "log" in sentence
    assert processes_of(folder / "data") == []


@pytest.mark.nightly
def test_a_damaged_queue_is_named_with_the_way_out(folder: Path) -> None:
    (folder / "redis").mkdir()
    (folder / "redis" / "appendonly.aof").write_bytes(b"not what Redis writes" * 100)
    sentence = refused(folder)
    assert sentence.startswith("Redis does not start")
    assert "moved away" in sentence
    assert processes_of(folder) == []


@needs_root
def test_root_in_a_folder_that_nobody_else_can_enter(folder: Path) -> None:
    """The database is elsewhere, and up before the start ends for want of a broker."""
    folder.chmod(0o700)
    variables = environment(folder / "data", CELERY_BROKER_URL="nonsense://x")
    done = subprocess.run(command("run"), env=variables, capture_output=True, text=True, timeout=120, check=False)
    (line,) = (line for line in done.stdout.splitlines() if "its data is in /var/lib/asap-web/" in line)
    data = Path(line.rsplit(" ", 1)[1])
    assert (data / "PG_VERSION").exists() and "CELERY_BROKER_URL" in done.stderr
    assert folder.stat().st_mode & 0o777 == 0o700 and processes_of(folder / "data") == []
    shutil.rmtree(data.parent)


@needs_root
def test_root_with_an_environment_that_nobody_else_can_enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout below /root: PostgreSQL's programs are copied to where its user may run them."""
    private = folder / "private"
    for part in (postgres.INSTALLATION, postgres.LIBRARIES):
        shutil.copytree(postgres.PACKAGES / part, private / part, symlinks=True)
    private.chmod(0o700)
    monkeypatch.setattr(postgres, "PACKAGES", private)
    monkeypatch.setattr(postgres, "SHARED_FOLDER", folder / "shared")
    cluster = postgres.place_cluster(folder, folder / "log", durable=False)
    assert cluster.binaries.is_relative_to(folder / "shared")
    with cluster.running():
        assert cluster.is_alive()
    assert not cluster.is_alive()
