"""People, and an experiment of theirs that is ready, stored once for all tests in a row that begin with them.

Making them takes longer than most tests.  They lie in a transaction around the tests' own, which roll back to them; a
test that begins with people alone, with an empty database or with committed rows finds just that.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored

#: Fixtures of tests/backend/conftest.py, each of which begins with those before it.
MODULE = "tests.backend.conftest"
LAYERS = ("people", "ready")


class StoredRows:
    """What is made lies in `made`, in the order of LAYERS, each in a transaction within the one before."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._transactions: list[transaction.Atomic] = []
        self._home = Path(tempfile.mkdtemp(prefix="asap-tests-rows-", dir="/tmp"))

    def have(self, wanted: int) -> None:
        """So many layers and no more."""
        if self.made and not connection.in_atomic_block:  # a test has closed the connection
            self.made, self._transactions = [], []
        while len(self.made) > wanted:
            self.made.pop()
            transaction.set_rollback(True)
            self._transactions.pop().__exit__(None, None, None)
        while len(self.made) < wanted:
            self._transactions.append(transaction.atomic())
            self._transactions[-1].__enter__()
            self.made.append(self._make(LAYERS[len(self.made)]))

    def copied(self, home: Path) -> list[Any]:
        """Objects that a test may change, and their files in its data folder."""
        if len(self.made) > LAYERS.index("ready"):
            shutil.copytree(self._home, home, dirs_exist_ok=True)
        return copy.deepcopy(self.made)

    def _make(self, layer: str) -> People | Stored:
        from tests.backend.factories import make_people, make_ready

        if layer == "people":
            return make_people()
        shutil.rmtree(self._home)
        self._home.mkdir()
        with override_settings(ASAP_HOME=self._home):
            return make_ready(self.made[0])

    def end(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def layers_of(item: pytest.Item) -> int:
    """How many a test begins with: its fixtures of that name and module."""
    known = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]

    def begins_with(name: str) -> bool:
        return name in known and known[name][-1].func.__module__ == MODULE

    return len(list(takewhile(begins_with, LAYERS)))
