"""Restore a backup into an empty data folder and an empty database, and verify both against its manifest."""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from asapweb.backups import database, manifest
from asapweb.backups.manifest import DUMP, FILES, File, Hashed, Manifest, difference
from asapweb.launcher.folders import open_home, sole_use
from asapweb.user_error import UserError


def restore(source: Path, home: Path) -> Manifest:
    """Restore the backup `source` and return its manifest; changes nothing unless the backup is whole and its place
    is empty."""
    given = manifest.read(source)
    _verify(source, given)
    if held := sorted(path.name for path in home.iterdir() if manifest.is_data(path.name)) if home.is_dir() else []:
        raise UserError(
            f"The data folder {home} holds data already ({', '.join(held[:3])}): restore into an empty folder, named "
            "by ASAP_HOME."
        )
    if not os.environ.get("DATABASE_URL") and (home / "postgres" / "PG_VERSION").exists():
        raise UserError(f"{home / 'postgres'} holds a database already: restore into an empty folder (ASAP_HOME).")
    with sole_use(opened := open_home(home)):
        with nullcontext() if os.environ.get("DATABASE_URL") else database.started(opened):
            _restore_database(source / DUMP, home, given)
        _unpack(source / FILES, home, given)
    return given


def _verify(source: Path, given: Manifest) -> None:
    """Compare the backup with its own manifest."""
    try:
        whole = manifest.entry_of(source / DUMP).sha256 == given.dump_sha256
        with tarfile.open(source / FILES) as archive:
            packed = {member.name: Hashed(_content(archive, member)).entry() for member in archive}
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"The backup {source} cannot be read: {error}.") from None
    if not whole:
        raise UserError(f"{source / DUMP} differs from its manifest: the backup is damaged.")
    if names := difference(given.files, packed):
        raise UserError(f"Files in {source / FILES} differ from the manifest: {names}. The backup is damaged.")


def _restore_database(dump: Path, home: Path, given: Manifest) -> None:
    with database.connect(home) as connection:
        present, major = database.row_counts(connection), database.major_of(connection)
    if present:
        raise UserError(f"The database holds {len(present)} tables already: restore into an empty database.")
    if major < given.postgresql:
        raise UserError(
            f"The backup is of PostgreSQL {given.postgresql} and cannot be restored into {major}: use "
            f"{given.postgresql} or newer."
        )
    database.load(home, major, dump)
    with database.connect(home) as connection:
        if names := difference(given.tables, database.row_counts(connection)):
            raise UserError(f"The restored tables differ from the backup in their rows: {names}.")


def _unpack(source: Path, home: Path, given: Manifest) -> None:
    # Not `extractall`: the `filter` that makes it safe is missing in Debian 12's Python 3.11.2.
    with tarfile.open(source) as archive:
        for member in archive:
            path = (home / member.name).resolve()
            if member.name not in given.files or not path.is_relative_to(home.resolve()):
                raise UserError(
                    f"{source} holds {member.name!r}, which is no file of the backup; nothing more is unpacked."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(_content(archive, member), file)
    found: dict[str, File] = {}
    for name in given.files:
        path = home / name
        path.chmod(0o600)
        found[name] = manifest.entry_of(path)
    if names := difference(given.files, found):
        raise UserError(f"The restored files differ from the backup: {names}.")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """Raises TarError for what is no file: a backup holds nothing else."""
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise tarfile.TarError(f"{member.name} is not a file")
    return stream
