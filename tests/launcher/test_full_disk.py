"""A disk that runs full, with real services on a small file system: all goes on once there is room."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.launcher.application import Application, eventually, running
from tests.launcher.visitor import Visitor

KEPT_MB = 60
DISK_MB = 450


@pytest.fixture(scope="module")
def small_disk(first_start: Application) -> Iterator[Path]:
    with on_a_small_disk(first_start) as folder:
        yield folder


@contextmanager
def on_a_small_disk(first_start: Application) -> Iterator[Path]:
    """A copy of a used data folder on a file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="asap-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        folder.rmdir()
        pytest.skip("may not mount a small file system here")
    try:
        subprocess.run(["cp", "-a", str(first_start.home), str(folder / "data")], check=True)
        (folder / "filler").touch()  # a full disk may refuse a new file
        yield folder / "data"
    finally:
        eventually(lambda: subprocess.run(["umount", str(folder)], check=False).returncode == 0, 20)
        folder.rmdir()


@pytest.fixture(scope="module")
def application(small_disk: Path) -> Iterator[Application]:
    with running(small_disk, ASAP_KEEP_FREE_MB=str(KEPT_MB)) as started:
        yield started


@pytest.fixture(scope="module")
def visitor(application: Application) -> Visitor:
    return Visitor(application)


def fill(home: Path, leave_mb: float) -> Path:
    """What another program leaves no room with."""
    filler = home.parent / "filler"
    size = shutil.disk_usage(home).free - int(leave_mb * 1e6)
    with filler.open("ab", buffering=0) as file:  # closing would write again what a buffer still holds
        while size > 0:
            try:
                size -= file.write(b"x" * min(size, 1 << 20))
            except OSError:
                break
    return filler


def has_no_parts(home: Path) -> bool:
    return not list((home / "uploading").iterdir()) and not any((home / "uploads").glob("*/*.part"))


def test_what_does_not_fit_is_refused_before_it_is_taken(small_disk: Path, visitor: Visitor) -> None:
    free = shutil.disk_usage(small_disk).free
    status, page = visitor.upload(free - 20_000_000)
    assert status == 507
    assert re.search(r"needs [\d.]+ MB, and the server's disk has [\d.]+ MB free", page)
    status, answer = visitor.upload(free - 20_000_000, Accept="application/json")
    assert status == 507 and "B free" in json.loads(answer)["error"]
    chunks = (b"x" * 1_000_000 for _ in range(free // 1_000_000))
    status, answer = visitor.request("POST", "/api/experiments/", chunks)
    assert status == 507 and "B free" in json.loads(answer)["detail"]
    assert has_no_parts(small_disk)
    assert abs(shutil.disk_usage(small_disk).free - free) < 20_000_000
    assert visitor.healthz() == {"status": "ok", "database": "ok", "broker": "ok", "disk": "ok"}
    assert visitor.upload(100_000)[0] == 302


def test_a_nearly_full_disk_leaves_reading_and_deciding_and_goes_away_by_itself(
    small_disk: Path, visitor: Visitor
) -> None:
    failed = _failed_so_far(small_disk)
    filler = fill(small_disk, leave_mb=KEPT_MB / 2)
    assert eventually(lambda: visitor.healthz().get("status") == "degraded")
    status, answer = visitor.upload(100_000, Accept="application/json")
    assert status == 507, answer
    assert eventually(lambda: visitor.request("GET", "/")[0] == 200)
    assert eventually(lambda: visitor.post("/settings/tokens/", {})[0] == 200)
    said = visitor.healthz()
    assert "uploads and analyses are refused" in said["disk"], said
    assert eventually(lambda: visitor.readyz() == (200, {"database": "ok"}))
    filler.unlink()
    assert eventually(lambda: visitor.healthz().get("status") == "ok", within_s=90)
    assert visitor.upload(100_000)[0] == 302
    assert eventually(lambda: _failed(small_disk) == failed + 1, within_s=180)  # no profile, so read and refused


def test_a_disk_without_a_single_byte_for_a_while(small_disk: Path, visitor: Visitor) -> None:
    """PostgreSQL, Redis and the worker may end, and come back when there is room."""
    failed = _failed_so_far(small_disk)
    filler = fill(small_disk, leave_mb=0)
    _write_until_refused(small_disk)
    assert eventually(lambda: visitor.healthz().get("status") == "degraded")
    filler.unlink()
    assert eventually(lambda: visitor.healthz().get("status") == "ok", within_s=120)
    # A database that the full disk ended may do so only now; what is refused meanwhile is not stored.
    assert eventually(lambda: visitor.upload(100_000)[0] == 302, within_s=60)
    assert eventually(lambda: _failed(small_disk) == failed + 1, within_s=90)
    with _connect(small_disk) as connection:
        connection.execute("drop table if exists filler")


def _connect(home: Path) -> psycopg.Connection[tuple[str]]:
    return psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap", connect_timeout=5)


def _failed_so_far(home: Path) -> int:
    """Runs that have failed, once none goes on."""
    assert eventually(lambda: _failed(home) >= 0, within_s=90)
    return _failed(home)


def _failed(home: Path) -> int:
    """Runs that have failed; -1 where the database does not answer or one of them goes on."""
    try:
        with _connect(home) as connection:
            statuses = [row[0] for row in connection.execute("select status from experiments_run")]
    except psycopg.Error:
        return -1
    return len(statuses) if set(statuses) <= {"failed"} else -1


def _write_until_refused(home: Path) -> None:
    try:
        with _connect(home) as connection:
            connection.execute("create table if not exists filler (text text)")
            rows = "insert into filler select repeat(md5(random()::text), 30) from generate_series(1, 3000)"
            for _ in range(200):
                connection.execute(rows)
    except psycopg.Error:
        return
    raise AssertionError("the disk is not full")
