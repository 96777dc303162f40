from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launcher.application import (
    UNPRIVILEGED,
    UPLOAD_LIMIT_MB,
    Application,
    copied,
    eventually,
    new_folder,
    ordinary_user,
    running,
)
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


@pytest.fixture(scope="package")
def application(first_start: Application) -> Iterator[Application]:
    """A second start while another program has port 8000, for all tests that leave it as it was."""
    with copied(first_start.home) as home, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # someone else has it, which is all we need
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        with running(home, ASAP_MAX_UPLOAD_MB=str(UPLOAD_LIMIT_MB)) as started:
            assert eventually(started.is_ready)
            yield started


@pytest.fixture(scope="package")
def visitor(application: Application) -> Visitor:
    """Its administrator, whose link works once."""
    return Visitor(application)


@pytest.fixture
def unprivileged() -> str | None:
    """The user under whom an ordinary user's tests run: ourselves, or `nobody` where we are root."""
    user = ordinary_user()
    if user is None and os.getuid() == 0:
        pytest.skip(f"{UNPRIVILEGED} may not run {sys.executable}, which lies in another user's folder")
    return user
