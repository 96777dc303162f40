"""Files below the data folder that the database does not name: a process was killed while it wrote them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.apps import apps

from experiments.services import storage

#: What is younger may still be on its way: its row is written once the file is whole.
OLDER_THAN = timedelta(hours=1)
FOLDERS = ("uploading", storage.UPLOADS, storage.PROFILES, "documents", "imports")


def find(older_than: timedelta = OLDER_THAN) -> list[str]:
    """Paths below the data folder that nobody has written to for so long."""
    before = time.time() - older_than.total_seconds()
    # Listed first: what is stored between the two is in the database by then.
    files = [path for folder in FOLDERS for path in _old(folder, before)]
    known = set(named())
    return sorted(path for path in files if path not in known)


def named() -> Iterator[str]:
    """Every file that the database names: models say in `FILE_COLUMNS` where."""
    for model in apps.get_models():
        for column in getattr(model, "FILE_COLUMNS", ()):
            yield from model._default_manager.exclude(**{column: ""}).values_list(column, flat=True)


def remove(older_than: timedelta = OLDER_THAN) -> list[str]:
    """Remove them; returns their paths."""
    files = find(older_than)
    storage.remove(files)
    for folder in FOLDERS:
        _remove_empty(folder, time.time() - older_than.total_seconds())
    return files


def _old(folder: str, before: float) -> Iterator[str]:
    root = storage.root()
    for parent, _, names in os.walk(root / folder):
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    yield str(path.relative_to(root))


def _remove_empty(folder: str, before: float) -> None:
    for path in storage.absolute(folder).glob("*"):
        with suppress(OSError):
            if path.is_dir() and path.stat().st_mtime < before and not any(path.iterdir()):
                shutil.rmtree(path)
