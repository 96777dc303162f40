"""`asap backup` and `asap restore`: what is restored is what was backed up, whoever works meanwhile."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from asapweb.launcher.postgres import place_cluster
from tests.launcher.application import command, environment, eventually, running
from tests.launcher.foreign import postgresql_over_tcp, with_pgvector
from tests.launcher.visitor import Visitor


def asap(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(home, **variables), capture_output=True, text=True, timeout=240
    )


def done(home: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    answer = asap(home, *arguments, "--json", **variables)
    assert answer.returncode == 0, answer.stderr
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def counted(connection: psycopg.Connection[Any]) -> dict[str, int]:
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables}


def uploaded(connection: psycopg.Connection[Any], home: Path) -> int:
    """Compare every uploaded file with the SHA-256 of its row, and return their number."""
    rows = connection.execute("SELECT path, sha256 FROM experiments_profilefile").fetchall()
    for path, digest in rows:
        assert hashlib.sha256((home / path).read_bytes()).hexdigest() == digest
    return len(rows)


def content_of(home: Path) -> tuple[dict[str, int], int]:
    """Rows by table and number of verified uploads of a data folder on which nothing runs."""
    cluster = place_cluster(home, home / "log")
    with cluster.running(), cluster.connect(database="asap") as connection:
        return counted(connection), uploaded(connection, home)


def test_restored_installation_equals_the_one_that_was_backed_up(used_home: Path, folder: Path) -> None:
    with running(used_home) as application:
        visitor = Visitor(application)
        for _ in range(3):
            assert visitor.upload(20_000)[0] == 302
        open_runs = "SELECT count(*) FROM experiments_run WHERE status NOT IN ('ready', 'failed')"
        with psycopg.connect(host=str(used_home / "postgres"), user="postgres", dbname="asap") as connection:
            connection.autocommit = True
            assert eventually(lambda: connection.execute(open_runs).fetchone() == (0,))
        made = done(used_home, "backup", str(folder / "backup"))
        assert made["files"] >= 3 and made["missing"] == []
    before = content_of(used_home)
    assert before[1] == 3
    assert (folder / "backup").stat().st_mode & 0o077 == 0
    restored = done(folder / "data", "restore", str(folder / "backup"))
    assert (restored["files"], restored["bytes"]) == (made["files"], made["bytes"])
    # The signing-in of whoever looks is not in the backup.
    tables, files = content_of(folder / "data")
    assert (tables, files) == (before[0], 3)
    assert (folder / "data" / "secret_key").read_text() == (used_home / "secret_key").read_text()
    with running(folder / "data") as application:
        names = json.loads(Visitor(application).request("GET", "/api/experiments/")[1])
        assert names["count"] == 3


@pytest.mark.nightly
def test_backup_is_consistent_while_people_upload_and_delete(used_home: Path, folder: Path) -> None:
    with running(used_home) as application:
        visitor, stop = Visitor(application), threading.Event()

        def work() -> None:
            while not stop.is_set():
                visitor.upload(2_000)
                listed = json.loads(visitor.request("GET", "/api/experiments/?limit=50")[1])["results"]
                for item in listed[3:]:
                    visitor.request(
                        "DELETE", f"/api/experiments/{item['id']}/", X_CSRFToken=visitor.cookies["csrftoken"]
                    )

        worker = threading.Thread(target=work)
        worker.start()
        try:
            made = [done(used_home, "backup", str(folder / f"backup-{n}")) for n in range(2)]
        finally:
            stop.set()
            worker.join()
    assert [each["missing"] for each in made] == [[], []]
    assert not list(used_home.glob(".backup-*"))
    done(folder / "data", "restore", str(folder / "backup-1"))
    assert content_of(folder / "data")[1] > 0


def test_restore_changes_nothing_where_the_backup_is_damaged_or_its_place_is_taken(
    used_home: Path, folder: Path
) -> None:
    done(used_home, "backup", str(folder / "backup"))  # of an application that does not run
    refused = asap(used_home, "restore", str(folder / "backup"))
    assert (refused.returncode, "holds data already" in refused.stderr) == (2, True)
    refused = asap(used_home, "backup", str(folder / "backup"))
    assert (refused.returncode, "exists already" in refused.stderr) == (2, True)
    refused = asap(used_home, "backup", str(used_home / "backup"))
    assert (refused.returncode, "lies in the data folder" in refused.stderr) == (2, True)
    for name in ("files.tar", "database.dump"):
        path = folder / "backup" / name
        whole = path.read_bytes()
        at = whole.index((used_home / "secret_key").read_bytes()) if name == "files.tar" else len(whole) // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused = asap(folder / "data", "restore", str(folder / "backup"))
        assert (refused.returncode, "damaged" in refused.stderr) == (2, True), refused
        assert not (folder / "data").exists()
        path.write_bytes(whole)
    refused = asap(folder / "data", "restore", str(folder))
    assert (refused.returncode, "no complete backup" in refused.stderr) == (2, True)


@pytest.mark.nightly
def test_file_that_was_lost_before_is_named_and_does_not_stop_the_backup(used_home: Path, folder: Path) -> None:
    with running(used_home) as application:
        assert Visitor(application).upload(2_000)[0] == 302
        with psycopg.connect(host=str(used_home / "postgres"), user="postgres", dbname="asap") as connection:
            (path,) = connection.execute("SELECT path FROM experiments_profilefile").fetchone() or ("",)
        (used_home / path).unlink()
        assert done(used_home, "backup", str(folder / "backup"))["missing"] == [path]


@pytest.mark.nightly
def test_database_of_a_deployment_is_backed_up_and_restored_into_another(used_home: Path, folder: Path) -> None:
    binaries = with_pgvector(folder)
    done(used_home, "backup", str(folder / "first"))
    for name in ("one", "two"):
        (folder / name).mkdir()
    with (
        postgresql_over_tcp(folder / "one", binaries, prepared=True) as one,
        postgresql_over_tcp(folder / "two", binaries, prepared=True) as two,
    ):
        done(folder / "data-1", "restore", str(folder / "first"), DATABASE_URL=one)
        done(folder / "data-1", "backup", str(folder / "second"), DATABASE_URL=one)
        done(folder / "data-2", "restore", str(folder / "second"), DATABASE_URL=two)
        again = asap(folder / "data-3", "restore", str(folder / "second"), DATABASE_URL=two)
        assert (again.returncode, "tables already" in again.stderr) == (2, True)
        with psycopg.connect(one) as first, psycopg.connect(two) as second:
            assert counted(first) == counted(second)
            assert sum(counted(second).values()) > 100
    assert not (folder / "data-2" / "postgres").exists()
