"""What the process environment says about this installation: data folder, database, broker, secret key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def home_folder() -> Path:
    """The data folder: `ASAP_HOME`, or `data` beside the code."""
    return Path(os.environ.get("ASAP_HOME") or Path(__file__).resolve().parent.parent / "data").resolve()


def database_settings(home: Path) -> dict[str, Any]:
    """Django's DATABASES entry: `DATABASE_URL`, or the embedded PostgreSQL by its socket folder."""
    raise NotImplementedError


def broker_url(home: Path) -> str:
    raise NotImplementedError


def secret_key(home: Path) -> str:
    raise NotImplementedError
