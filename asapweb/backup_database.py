"""The application's database for a backup: connected to, counted, dumped and restored by PostgreSQL's own programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured

from asapweb.environment import database_arguments
from asapweb.launcher import postgres
from asapweb.launcher.folders import Home, open_home, sole_use
from asapweb.user_error import UserError
from jobs import child
from jobs.child_environment import SYSTEM, environment

#: Where Debian and its like install the programs of a major version.
DEBIAN = "/usr/lib/postgresql/{major}/bin"

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def available(home: Path) -> Iterator[None]:
    """Have the database while the block runs: the one that DATABASE_URL names, the running embedded one, or the
    embedded one started for this."""
    if os.environ.get("DATABASE_URL") or _answers(home):
        yield
        return
    with sole_use(opened := open_home(home)), started(opened):
        yield


@contextmanager
def started(home: Home) -> Iterator[None]:
    """Run the embedded PostgreSQL; the caller holds the data folder."""
    cluster = postgres.place_cluster(home.path, home.log("postgresql"))
    with cluster.running():
        os.environ["DATABASE_URL"] = cluster.url
        try:
            cluster.create_database()
            yield
        finally:
            del os.environ["DATABASE_URL"]


def connect(home: Path) -> Connection:
    """Raises UserError with the reason, never with the password."""
    try:
        return psycopg.connect(**database_arguments(home), connect_timeout=10)
    except ImproperlyConfigured as error:
        raise UserError(str(error)) from None
    except psycopg.OperationalError as error:
        raise UserError(f"The database cannot be used: {str(error).strip().splitlines()[-1]}") from None


def _answers(home: Path) -> bool:
    try:
        connect(home).close()
    except UserError:
        return False
    return True


def major_of(connection: Connection) -> int:
    return connection.info.server_version // 10_000


def dump(home: Path, major: int, snapshot: str, target: Path) -> None:
    """Write the database as the snapshot sees it, in PostgreSQL's custom format."""
    _run("pg_dump", home, major, "--format=custom", f"--snapshot={snapshot}", f"--file={target}")


def load_empty(home: Path, made_by: int, source: Path) -> None:
    """Fill the empty database from a dump of PostgreSQL `made_by`, all of it or nothing.  Raises UserError."""
    with connect(home) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        major = major_of(connection)
    if tables:
        raise UserError(f"The database holds {len(tables)} tables already: restore into an empty database.")
    if major < made_by:
        raise UserError(
            f"The backup is of PostgreSQL {made_by} and cannot be restored into {major}: use {made_by} or newer."
        )
    # An administrator may own the extension, whose comment and rights its own are not ours to set.
    _run("pg_restore", home, major, "--no-owner", "--no-privileges", "--no-comments", "--single-transaction",
         "--exit-on-error", f"--dbname={database_arguments(home)['dbname']}", str(source))  # fmt: skip


def _run(name: str, home: Path, major: int, *arguments: str) -> None:
    variables = {f"PG{key.replace('dbname', 'database').upper()}": str(value)
                 for key, value in database_arguments(home).items() if key != "application_name"}  # fmt: skip
    done = child.run_text([_program(name, major), *arguments], environment(SYSTEM, values=variables), folder=Path("/"))
    if done.returncode != 0:
        complaint = (done.stderr.strip() or "no message").splitlines()
        raise UserError(f"{name} failed: {next((line for line in complaint if 'error' in line), complaint[-1])}")


def _program(name: str, major: int) -> str:
    """Return the program of the server's major version: another one may write what this server does not read."""
    folders = [Path(DEBIAN.format(major=major))]
    if major == int(postgres.MAJOR):
        folders.append(postgres.PACKAGES / postgres.INSTALLATION / "bin")
    found = [str(folder / name) for folder in folders if (folder / name).exists()] + [shutil.which(name) or ""]
    for program in filter(None, found):
        version = child.run_text([program, "--version"], environment(SYSTEM)).stdout
        if f" {major}." in version or version.strip().endswith(f" {major}"):
            return program
    raise UserError(
        f"{name} of PostgreSQL {major} is needed, the version of the server: install it (Debian: "
        f"postgresql-client-{major})."
    )
