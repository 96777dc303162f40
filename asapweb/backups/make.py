"""Write a backup while the application runs: the database in one snapshot, and every file that it names."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import django
from django.apps import apps
from psycopg import sql

from asapweb.backups import database
from asapweb.backups.manifest import DUMP, FILES, GATHERED, MANIFEST, File, Hashed, Manifest, entry_of, is_data
from asapweb.user_error import UserError
from disk import space

#: Snapshots that are tried: an experiment that is deleted meanwhile takes its files along.
ATTEMPTS = 3
#: What was gathered so long ago (s) is of a killed backup.
STALE_S = 86_400


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
            return Manifest(
                created_at=datetime.now(UTC).isoformat(timespec="seconds"),
                postgresql=major,
                dump_sha256=entry_of(target / DUMP).sha256,
                tables=database.row_counts(connection),
                files=_pack(gathered, target / FILES),
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


def _pack(folder: Path, target: Path) -> dict[str, File]:
    """Write the files to a tar archive and return size and SHA-256 of each, by path."""
    entries = {}
    with tarfile.open(target, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
            name = str(path.relative_to(folder))
            with path.open("rb") as stream:
                member = archive.gettarinfo(arcname=name, fileobj=stream)
                hashed = Hashed(stream)
                archive.addfile(_plain(member), hashed)
                entries[name] = hashed.entry()
    return entries


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of its own, not a link to another: whoever restores it owns it."""
    member.type, member.linkname = tarfile.REGTYPE, ""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
