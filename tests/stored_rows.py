"""The owner of every row that outlives a test: it makes them, lends them to tests and modules, and removes them.

Function-scoped rows are pytest-django's.  Rows for several tests come from here, in one of four ways:

`have`: people, and an experiment of theirs that is ready, stored once for all tests in a row that begin with them.
Making them takes longer than most tests.  They lie in a transaction around the tests' own, which roll back to them; a
test that begins with people alone, with an empty database or with committed rows finds just that.
`rolled_back`, `committed`, `own_database`: what a module or a package stores within, on an empty database.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import override_settings
from psycopg import sql

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored

#: Fixtures of tests/backend/conftest.py, each of which begins with those before it.
MODULE = "tests.backend.conftest"
LAYERS = ("people", "ready")
#: Written by migrations, and kept by Django's own `flush`.
OF_MIGRATIONS = ("django_migrations", "django_content_type")


class StoredRows:
    """What is made lies in `made`, in the order of LAYERS, each in a transaction within the one before."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._transactions: list[transaction.Atomic] = []
        self._home = Path(tempfile.mkdtemp(prefix="asap-tests-rows-", dir="/tmp"))
        self._database = ""
        self._is_lent = False

    def prepare(self) -> None:
        """Have the tests' database: pytest-django makes it only for a session with a test marked `django_db`."""
        if not str(connection.settings_dict["NAME"]).startswith("test_"):
            connection.creation.create_test_db(verbosity=0, serialize=False)
        self._database = str(connection.settings_dict["NAME"])

    def have(self, wanted: int) -> None:
        """Have `wanted` layers and no more."""
        assert not (self._is_lent and wanted), "a module with rows of its own can have no layers"
        if self.made and (not connection.in_atomic_block or connection.closed_in_transaction):
            self._forget()  # a test has closed the connection
        while len(self.made) > wanted:
            self.made.pop()
            self._roll_back()
        while len(self.made) < wanted:
            self._begin()
            try:
                self.made.append(self._make(LAYERS[len(self.made)]))
            except BaseException:
                self._roll_back()
                raise

    def copied(self, home: Path) -> list[Any]:
        """Objects that a test may change, and their files in its data folder."""
        if len(self.made) > LAYERS.index("ready"):
            shutil.copytree(self._home, home, dirs_exist_ok=True)
        return copy.deepcopy(self.made)

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Take back what is stored within, by the transaction around it."""
        with self._lent():
            self._begin()
            try:
                yield
            finally:
                self._roll_back()

    @contextmanager
    def committed(self) -> Iterator[None]:
        """Delete all rows afterwards: whoever uses several connections commits what is stored within."""
        with self._lent():
            try:
                yield
            finally:
                self.delete_all()

    @contextmanager
    def own_database(self, name: str) -> Iterator[None]:
        """Use another database, a copy of the empty one, that is dropped afterwards."""
        with self._lent():
            _close()
            quoted = {"new": sql.Identifier(name), "usual": sql.Identifier(self._database)}
            self._on_cluster(sql.SQL("DROP DATABASE IF EXISTS {new} WITH (FORCE)").format(**quoted))
            leave = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}"
            self._on_cluster(sql.SQL(leave).format(sql.Literal(self._database)))
            self._on_cluster(sql.SQL("CREATE DATABASE {new} TEMPLATE {usual}").format(**quoted))
            connection.settings_dict["NAME"] = name
            try:
                yield
            finally:
                _close()
                connection.settings_dict["NAME"] = self._database
                self._on_cluster(sql.SQL("DROP DATABASE {new} WITH (FORCE)").format(**quoted))

    def committed_tables(self) -> list[str]:
        """Return the names of the tables that hold committed rows, none of them of a migration."""
        if not self._database:
            return []
        with psycopg.connect(**self._place(), dbname=self._database, autocommit=True) as apart:
            tables = apart.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
            each = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
            names = [name for (name,) in tables if name not in OF_MIGRATIONS]
            asked = [each.format(sql.Literal(name), sql.Identifier(name)) for name in names]
            return [name for (name,) in apart.execute(sql.SQL(" UNION ALL ").join(asked)).fetchall()]

    def delete_all(self) -> None:
        """Delete every row that a migration has not written."""
        self._forget()
        call_command("flush", interactive=False, verbosity=0, inhibit_post_migrate=True)

    def end(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def _lent(self) -> Iterator[None]:
        self.have(0)
        assert not self._is_lent, "rows are lent to one module at a time"
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False

    def _begin(self) -> None:
        self._transactions.append(transaction.atomic())
        self._transactions[-1].__enter__()

    def _roll_back(self) -> None:
        ended = self._transactions.pop()
        if connection.in_atomic_block:
            transaction.set_rollback(True)
            ended.__exit__(None, None, None)

    def _forget(self) -> None:
        """Leave the transactions, which PostgreSQL rolls back, with their connection."""
        if self._transactions:
            _close()
        self.made, self._transactions = [], []

    def _make(self, layer: str) -> People | Stored:
        from tests.backend.factories import make_people, make_ready

        if layer == "people":
            return make_people()
        shutil.rmtree(self._home)
        self._home.mkdir()
        with override_settings(ASAP_HOME=self._home):
            return make_ready(self.made[0])

    def _place(self) -> dict[str, Any]:
        return {"host": connection.settings_dict["HOST"], "user": connection.settings_dict["USER"] or None}

    def _on_cluster(self, statement: sql.Composed) -> None:
        with psycopg.connect(**self._place(), dbname="postgres", autocommit=True) as cluster:
            cluster.execute(statement)


def _close() -> None:
    """Close both connections of this thread: the one that Django keeps where an event loop runs, and the other."""
    loop = asyncio._get_running_loop()
    for each in {loop, None}:
        asyncio._set_running_loop(each)
        connection.close()
        if connection.closed_in_transaction:
            connection.connection, connection.in_atomic_block = None, False
    asyncio._set_running_loop(loop)


def layers_of(item: pytest.Item) -> int:
    """How many a test begins with: its fixtures of that name and module."""
    known = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]

    def begins_with(name: str) -> bool:
        return name in known and known[name][-1].func.__module__ == MODULE

    return len(list(takewhile(begins_with, LAYERS)))
