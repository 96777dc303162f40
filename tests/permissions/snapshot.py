"""What the database holds: checksums of all tables, and the rows that a request took away or added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from django.db import connection, transaction

#: Of whoever asks, written by any request: who is signed in, and how often a password was tried.
OF_ANY_REQUEST = ("django_session", "accounts_signinattempt")
_COUNTERS = ("inserted", "updated", "deleted")
_WRITES = "SELECT coalesce(sum({}), 0) FROM unnest(%s::oid[]) it".format(
    " + ".join(f"pg_stat_get_xact_tuples_{counter}(it)" for counter in _COUNTERS)
)


@cache
def _tables() -> list[str]:
    return sorted(set(connection.introspection.table_names()) - set(OF_ANY_REQUEST))


@cache
def _oids() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(format('%%I', name)::regclass::oid) FROM unnest(%s::text[]) name", [_tables()])
        found: list[int] = cursor.fetchone()[0]
        return found


def writes() -> int:
    """Rows that this transaction has inserted, updated and deleted so far, undone ones included."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITES, [_oids()])
        return int(cursor.fetchone()[0])


def checksums() -> dict[str, str]:
    """Of each table: the MD5 of all its rows."""
    each = (f"SELECT '{name}', md5(string_agg(t::text, '|' ORDER BY t::text)) FROM \"{name}\" t" for name in _tables())
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each))
        return dict(cursor.fetchall())


def rows(tables: list[str]) -> Counter[tuple[str, int | None, str]]:
    """All rows of these tables: table, team (None where it has no such column, or none), text."""
    found: Counter[tuple[str, int | None, str]] = Counter()
    with connection.cursor() as cursor:
        for name in tables:
            team = "id" if name == "accounts_team" else "team_id"
            cursor.execute(f"SELECT (to_jsonb(t)->>'{team}')::bigint, t::text FROM \"{name}\" t")
            found.update((name, row[0], row[1]) for row in cursor.fetchall())
    return found


@contextmanager
def undone() -> Iterator[None]:
    """What is stored within is taken back."""
    point = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(point)
