"""Whether the work of a first start has to be done again: migrations and static files have fingerprints."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import psycopg
from psycopg import sql

CODE = Path(__file__).resolve().parent.parent.parent
APPS_WITH_TABLES = (
    "accounts",
    "knowledge",
    "experiments",
    "diagnosis",
    "history",
    "proposals",
    "launches",
    "dialogue",
    "campaigns",
)
PREFIX = "asap-web schema "


def schema_fingerprint() -> str:
    """Of our migrations, and of the lock file, which decides on everybody else's."""
    files = [path for app in APPS_WITH_TABLES for path in (CODE / app / "migrations").glob("*.py")]
    return _of_contents([*files, CODE / "uv.lock"])


def static_fingerprint() -> str:
    files = [path for path in (CODE / "static").rglob("*") if path.is_file()]
    return _of_contents([*files, CODE / "uv.lock"])


def samples_fingerprint() -> str:
    """Of the shipped profiles, by name and size: they are large, and never change in place."""
    folder = CODE / "experiments" / "samples"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    listed = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    return sha256(listed.encode()).hexdigest()[:32]


def schema_in(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """The fingerprint with the migrations that a database says it has: a dump of an older version, restored, has
    fewer, and brings no comment of its own."""
    there = connection.execute("select to_regclass('django_migrations')").fetchone()
    query = "select md5(string_agg(app || '.' || name, ',' order by app, name)) from django_migrations"
    row = connection.execute(query).fetchone() if there and there[0] else None
    return f"{schema_fingerprint()} {row[0] if row else ''}"


def recorded_schema(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """`schema_in` when it was last migrated, kept as the comment of the database; empty before the first migration."""
    row = connection.execute(
        "select shobj_description(oid, 'pg_database') from pg_database where datname = current_database()"
    ).fetchone()
    comment = str(row[0] or "") if row else ""
    return comment.removeprefix(PREFIX) if comment.startswith(PREFIX) else ""


def record_schema(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Keep it; a user who does not own the database may not, and then migrates on every start."""
    name = connection.info.dbname
    try:
        connection.execute(
            sql.SQL("comment on database {} is {}").format(
                sql.Identifier(name), sql.Literal(PREFIX + schema_in(connection))
            )
        )
    except psycopg.errors.InsufficientPrivilege:
        return


def _of_contents(files: Iterable[Path]) -> str:
    digest = sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(CODE)).encode() + b"\0")
        if path.exists():
            digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
