"""Backups of an installation, database and files together: `back_up` writes one while it runs, `restore` reads it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
from django.apps import apps
from psycopg import sql
from pydantic import BaseModel, ValidationError

from asapweb import backup_database as database
from asapweb.launcher.folders import open_home, sole_use
from asapweb.user_error import UserError
from disk import space

MANIFEST, DUMP, FILES = "manifest.json", "database.dump", "files.tar"
#: Parts of the data folder that are no data: other programs' own files, what is temporary, and what is made again.
NOT_DATA = ("postgres", "redis", "run", "logs", "services.json", "uploading", "static", "reserve")
#: Begins the names of folders in which a backup gathers its files.
GATHERED = ".backup-"
#: Snapshots that are tried: an experiment that is deleted meanwhile takes its files along.
ATTEMPTS = 3
#: What was gathered so long ago (s) is of a killed backup.
STALE_S = 86_400


class Manifest(BaseModel):
    created_at: str
    postgresql: int  # major version of the server, and of the programs that read the dump
    dump_sha256: str
    files_sha256: str = ""  # of the archive; "": a backup of an earlier version
    file_count: int = 0
    bytes: int = 0  # of all files
    missing: list[str] = []  # files that the database named and that were not on disk

    @property
    def summary(self) -> dict[str, Any]:
        return {"files": self.file_count, "bytes": self.bytes, "missing": self.missing}


def back_up(home: Path, target: Path) -> Manifest:
    """Write a backup of the data folder and its database to the new folder `target` and return its manifest."""
    if target.exists():
        raise UserError(f"{target} exists already: name a new folder for the backup.")
    if target.is_relative_to(home):
        raise UserError(f"{target} lies in the data folder, of which later backups would hold it: name another place.")
    if not home.is_dir():
        raise UserError(f"There is no data folder {home}: set ASAP_HOME.")
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True, mode=0o700)
        with database.available(home):
            written = _write(home, unfinished)
        (unfinished / MANIFEST).write_text(written.model_dump_json(indent=1))
        unfinished.rename(target)
    except OSError as error:
        reason = space.sentence(error) if space.is_full(error) else error.strerror or str(error)
        raise UserError(f"The backup {target} cannot be written: {reason}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return written


def _write(home: Path, target: Path) -> Manifest:
    lost: set[str] = set()
    for attempt in range(ATTEMPTS):
        with database.connect(home) as connection, _gathering(home) as gathered:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            snapshot = connection.execute("SELECT pg_export_snapshot()").fetchone()
            assert snapshot is not None
            _gather(home, gathered)
            missing = {name for name in _named(connection) if not (gathered / name).is_file()}
            if missing - lost and attempt < ATTEMPTS - 1:
                lost = missing  # what is missing again was not deleted meanwhile, but lost before
                continue
            major = database.major_of(connection)
            database.dump(home, major, snapshot[0], target / DUMP)
            paths = sorted(path for path in gathered.rglob("*") if path.is_file() and not path.is_symlink())
            with tarfile.open(target / FILES, "w", dereference=True) as archive:
                for path in paths:
                    archive.add(path, path.relative_to(gathered), filter=_plain)
            return Manifest(
                created_at=datetime.now(UTC).isoformat(timespec="seconds"),
                postgresql=major,
                dump_sha256=_sha256(target / DUMP),
                files_sha256=_sha256(target / FILES),
                file_count=len(paths),
                bytes=sum(path.stat().st_size for path in paths),
                missing=sorted(missing),
            )
    raise AssertionError("unreachable")


@contextmanager
def _gathering(home: Path) -> Iterator[Path]:
    for left in home.glob(f"{GATHERED}*"):
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=GATHERED, dir=home))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _gather(home: Path, gathered: Path) -> None:
    """Link every file of the data folder, so that those deleted from now on stay for the backup."""
    for parent, folders, names in os.walk(home):
        place = Path(parent).relative_to(home)
        if place == Path("."):
            folders[:] = [name for name in folders if is_data(name)]
            names = [name for name in names if is_data(name)]
        (gathered / place).mkdir(exist_ok=True)
        for name in names:
            try:
                os.link(Path(parent, name), gathered / place / name, follow_symlinks=False)
            except FileNotFoundError:
                continue


def _named(connection: database.Connection) -> list[str]:
    """Return the paths that rows name, as the models say (`FILE_COLUMNS`)."""
    django.setup()
    found: list[str] = []
    for model in apps.get_models():
        for name in getattr(model, "FILE_COLUMNS", ()):
            table, column = sql.Identifier(model._meta.db_table), sql.Identifier(name)
            query = sql.SQL("SELECT {column} FROM {table} WHERE {column} <> ''").format(table=table, column=column)
            found += [row[0] for row in connection.execute(query)]
    return found


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of its own: whoever restores it owns it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def is_data(name: str) -> bool:
    """Return True if the part `name` of the data folder belongs into a backup."""
    return name not in NOT_DATA and not name.startswith(GATHERED)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def restore(source: Path, home: Path) -> Manifest:
    """Restore the backup `source` into an empty data folder and an empty database, and return its manifest.

    Changes nothing unless the backup is whole and its place is empty.
    """
    given = _verified(source)
    if held := sorted(path.name for path in home.iterdir() if is_data(path.name)) if home.is_dir() else []:
        raise UserError(
            f"The data folder {home} holds data already ({', '.join(held[:3])}): restore into an empty folder, named "
            "by ASAP_HOME."
        )
    if not os.environ.get("DATABASE_URL") and (home / "postgres" / "PG_VERSION").exists():
        raise UserError(f"{home / 'postgres'} holds a database already: restore into an empty folder (ASAP_HOME).")
    with sole_use(opened := open_home(home)):
        with nullcontext() if os.environ.get("DATABASE_URL") else database.started(opened):
            database.load_empty(home, given.postgresql, source / DUMP)
        _unpack(source / FILES, home)
    return given


def _verified(source: Path) -> Manifest:
    """Return the manifest of a backup that is as it says.  Raises UserError."""
    try:
        given = Manifest.model_validate_json((source / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        raise UserError(f"{source} holds no complete backup: {MANIFEST} cannot be read.") from None
    for name, digest in ((DUMP, given.dump_sha256), (FILES, given.files_sha256)):
        try:
            whole = _sha256(source / name) == (digest or _sha256(source / name))
        except OSError as error:
            raise UserError(f"The backup {source} cannot be read: {error}.") from None
        if not whole:
            raise UserError(f"{source / name} differs from its manifest: the backup is damaged.")
    return given


def _unpack(source: Path, home: Path) -> None:
    # Not `extractall`: the `filter` that makes it safe is missing in Debian 12's Python 3.11.2.
    with tarfile.open(source) as archive:
        for member in archive:
            path, stream = (home / member.name).resolve(), archive.extractfile(member) if member.isreg() else None
            if stream is None or not path.is_relative_to(home.resolve()):
                raise UserError(
                    f"{source} holds {member.name!r}, which is no file of a backup; nothing more is unpacked."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file)
            path.chmod(0o600)
