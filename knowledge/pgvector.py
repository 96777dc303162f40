"""The PostgreSQL extension that stores and compares vectors.  Knows no Django: the launcher asks before that runs."""

from __future__ import annotations

from typing import Any

import psycopg

from formatting.numbers import whole_number

#: From here on a filtered search walks the index on until it has enough (`hnsw.iterative_scan`).
LEAST = (0, 8)


def complaint(connection: psycopg.Connection[Any]) -> str:
    """Create the extension `vector` where it is not; empty, or one sentence on why it cannot be used."""
    row = connection.execute(
        "select default_version, installed_version from pg_available_extensions where name = 'vector'"
    ).fetchone()
    needs = f"ASAP Web needs the PostgreSQL extension pgvector {'.'.join(map(str, LEAST))} or newer"
    if row is None:
        return f"{needs}, which this server lacks: install it on the server (docs/operation.md) and start again."
    available, installed = row
    name = connection.info.dbname
    if installed is not None and _version(installed) < LEAST <= _version(available):
        return (
            f"{needs}, but the database {name} has {installed}: its owner must run ALTER EXTENSION vector UPDATE there."
        )
    if _version(installed or available) < LEAST:
        return f"{needs}, but this server has {available}: install a newer version (docs/operation.md)."
    if installed is None:
        try:
            connection.execute("create extension if not exists vector")
        except psycopg.errors.InsufficientPrivilege:
            return (
                f"{needs}, and the role {connection.info.user} may not create it: let an administrator of the server "
                f"run CREATE EXTENSION vector in the database {name} once."
            )
    return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(number for part in text.split(".") if (number := whole_number(part)) is not None)
