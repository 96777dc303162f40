from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.launcher.application import UNPRIVILEGED, Application


def _new_folder() -> Path:
    """Directly below /tmp: pytest's own folders are closed to the user under whom root's PostgreSQL runs."""
    folder = Path(tempfile.mkdtemp(prefix="asap-run-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


@pytest.fixture
def folder() -> Iterator[Path]:
    path = _new_folder()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def first_start() -> Iterator[Application]:
    """The first start on an empty folder, already stopped again by Ctrl-C."""
    path = _new_folder()
    application = Application(path / "data")
    application.readyz = application.get("/readyz")  # type: ignore[attr-defined]
    application.sign_in_page = application.get(application.sign_in_link.removeprefix(application.address))  # type: ignore[attr-defined]
    application.stop()
    (application.home / "reserve").unlink(missing_ok=True)  # large, and made again
    yield application
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def used_home(first_start: Application) -> Iterator[Path]:
    """A data folder as the first start left it, for one test."""
    with _copied(first_start.home) as home:
        yield home


@pytest.fixture(scope="module")
def module_home(first_start: Application) -> Iterator[Path]:
    """The same for the tests of a module, which share an application."""
    with _copied(first_start.home) as home:
        yield home


@contextmanager
def _copied(home: Path) -> Iterator[Path]:
    path = _new_folder()
    subprocess.run(["cp", "-a", str(home), str(path / "data")], check=True)
    yield path / "data"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def unprivileged() -> str | None:
    """The user under whom an ordinary user's tests run: ourselves, or `nobody` where we are root."""
    return UNPRIVILEGED if os.getuid() == 0 else None
