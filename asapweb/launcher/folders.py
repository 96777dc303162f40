"""The data folder: may we write there, is there room, does another launcher already use it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from asapweb.user_error import UserError
from disk import space
from formatting import limit, plain

#: What a first start writes, and what the services of a later one need at least.
FIRST_START_BYTES, LEAST_FREE_BYTES = 300 * 10**6, 50 * 10**6
LARGEST_LOG_BYTES = 10 * 10**6


@dataclass(frozen=True)
class Home:
    """The data folder and what the launcher keeps in it."""

    path: Path

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def redis(self) -> Path:
        return self.path / "redis"

    @property
    def uploading(self) -> Path:
        """What the web server is receiving; a killed one leaves its part there."""
        return self.path / "uploading"

    @property
    def services(self) -> Path:
        return self.path / "services.json"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


def open_home(path: Path) -> Home:
    """Make the data folder and its parts; raises UserError where it cannot be used."""
    home = Home(path)
    # Root's PostgreSQL runs as another user, who must pass through here; the parts themselves are private.
    mode = 0o711 if os.getuid() == 0 else 0o700
    try:
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(mode)
        for folder in (home.run, home.logs, home.redis, home.uploading):
            folder.mkdir(mode=0o700, exist_ok=True)
        probe = home.run / f"probe.{os.getpid()}"
        try:
            probe.write_bytes(b"x" * 4096)
        except OSError as error:
            if not space.is_full(error):
                raise
        probe.unlink(missing_ok=True)
    except OSError as error:
        if space.is_full(error):
            raise _too_full(home, FIRST_START_BYTES) from None
        reason = (error.strerror or str(error)).lower()
        raise UserError(
            f"The data folder {path} cannot be written ({reason}): set ASAP_HOME to a writable folder."
        ) from None
    for log in home.logs.glob("*.log"):
        if log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    return home


def make_room(home: Home) -> None:
    """Remove what a killed web server left; raises UserError where even then the services cannot run.

    To be called while the folder is ours.
    """
    clear_uploading(home)
    (home.path / "reserve").unlink(missing_ok=True)  # earlier versions held space with it
    wanted = LEAST_FREE_BYTES if home.services.exists() else FIRST_START_BYTES
    if space.free_bytes(home.path) < wanted:
        raise _too_full(home, wanted)


def clear_uploading(home: Home) -> None:
    """Remove what no web server is receiving any more, because none runs."""
    for path in home.uploading.iterdir():
        path.unlink(missing_ok=True)


def _too_full(home: Home, wanted_bytes: int) -> UserError:
    return UserError(
        f"Only {plain(space.free_bytes(home.path), 'bytes')} are free on the disk of {home.path}, at least "
        f"{limit(wanted_bytes, 'bytes')} are needed: free some space, or set ASAP_HOME to a folder on another disk."
    )


@contextmanager
def sole_use(home: Home) -> Iterator[None]:
    """Hold the data folder for this process; the kernel lets go of it however the process ends."""
    with (home.run / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_already_running(home)) from None
        make_room(home)
        write_holder(home, "")
        try:
            yield
        finally:
            _holder(home).unlink(missing_ok=True)


def write_holder(home: Home, address: str) -> None:
    """Tell a second launcher who holds the folder, and where it answers."""
    temporary = _holder(home).with_suffix(".new")
    temporary.write_text(json.dumps({"pid": os.getpid(), "address": address}))
    temporary.replace(_holder(home))


def _holder(home: Home) -> Path:
    return home.run / "launcher.json"


def _already_running(home: Home) -> str:
    try:
        holder = json.loads(_holder(home).read_text())
    except (OSError, ValueError):
        holder = {}
    who = f" (process {holder['pid']})" if holder.get("pid") else ""
    if holder.get("address"):
        return (
            f"ASAP Web is already running on {home.path}{who}: open {holder['address']}, or set ASAP_HOME to another "
            "folder."
        )
    return f"ASAP Web is starting on {home.path}{who}: wait for it, or set ASAP_HOME to another folder."
