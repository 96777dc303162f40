"""Files below the data folder.  The database knows them by relative path; names on disk are generated."""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from django.conf import settings

UPLOADS = "uploads"
PROFILES = "profiles"


def root() -> Path:
    """The data folder."""
    return Path(settings.ASAP_HOME)


def absolute(path: str) -> Path:
    """The file behind a stored relative path."""
    return root() / path


def new_folder(kind: str) -> str:
    """Create a folder with a generated name below `kind` and return its relative path."""
    path = f"{kind}/{uuid.uuid4().hex}"
    absolute(path).mkdir(parents=True, mode=0o700)
    return path


def remove(paths: list[str]) -> None:
    """Remove files and folders that may be there; the folder of a file goes once it is empty."""
    for path in paths:
        if not path:
            continue
        target = absolute(path)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            continue
        target.unlink(missing_ok=True)
        if target.parent.parent == root():
            continue  # shared by all; another worker may be about to write there
        with suppress(OSError):  # other files of the upload are in it, or it went with another file
            target.parent.rmdir()
