"""Whether the work of a first start has to be done again, by migrations applied and fingerprints of files."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import psycopg

CODE = Path(__file__).resolve().parent.parent.parent


def static_fingerprint() -> str:
    """Of our static files, and of the lock file, which decides on everybody else's and on their migrations."""
    files = [path for path in (CODE / "static").rglob("*") if path.is_file()]
    return _of_contents([*files, CODE / "uv.lock"])


def samples_fingerprint() -> str:
    """Of the shipped profiles, by name and size: they are large, and never change in place."""
    folder = CODE / "experiments" / "samples"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    listed = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    return sha256(listed.encode()).hexdigest()[:32]


def migrations() -> set[tuple[str, str]]:
    """Return app and name of each of our migrations."""
    return {(path.parent.parent.name, path.stem) for path in CODE.glob("*/migrations/0*.py")}


def applied_migrations(connection: psycopg.Connection[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Return app and name of each migration that a database says it has had; none of a new one."""
    there = connection.execute("select to_regclass('django_migrations')").fetchone()
    if there is None or there[0] is None:
        return set()
    return set(connection.execute("select app, name from django_migrations"))


def _of_contents(files: Iterable[Path]) -> str:
    digest = sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(CODE)).encode() + b"\0")
        if path.exists():
            digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
