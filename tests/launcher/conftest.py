from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.application import UNPRIVILEGED, Application, copied, new_folder, running
from tests.launcher.visitor import Visitor


@pytest.fixture
def folder() -> Iterator[Path]:
    path = new_folder()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def used_home(first_start: Application) -> Iterator[Path]:
    """A data folder as the first start left it, for one test."""
    with copied(first_start.home) as home:
        yield home


@pytest.fixture(scope="module")
def module_home(first_start: Application) -> Iterator[Path]:
    """The same for the tests of a module, which share an application."""
    with copied(first_start.home) as home:
        yield home


@pytest.fixture(scope="package")
def application(first_start: Application) -> Iterator[Application]:
    """A running one, for all tests that leave it as it was."""
    with copied(first_start.home) as home, running(home) as started:
        yield started


@pytest.fixture(scope="package")
def visitor(application: Application) -> Visitor:
    """Its administrator, whose link works once."""
    return Visitor(application)


@pytest.fixture
def unprivileged() -> str | None:
    """The user under whom an ordinary user's tests run: ourselves, or `nobody` where we are root."""
    return UNPRIVILEGED if os.getuid() == 0 else None
