"""The data folder: may we write there, is there room, does another launcher already use it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from asapweb.cli.errors import UserError

LEAST_FREE_BYTES = 300 * 10**6
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
        for folder in (home.run, home.logs, home.redis, path / "uploading"):
            folder.mkdir(mode=0o700, exist_ok=True)
        probe = home.run / f"probe.{os.getpid()}"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(
            f"The data folder {path} cannot be written ({reason}): set ASAP_HOME to a folder that you can write."
        ) from None
    free = shutil.disk_usage(path).free
    if free < LEAST_FREE_BYTES:
        raise UserError(
            f"Only {free / 1e6:.0f} MB are free in {path}, at least {LEAST_FREE_BYTES / 1e6:.0f} MB are needed: "
            "free some, or set ASAP_HOME to a folder on another disk."
        )
    for log in home.logs.glob("*.log"):
        if log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    return home


@contextmanager
def sole_use(home: Home) -> Iterator[None]:
    """Hold the data folder for this process; the kernel lets go of it however the process ends."""
    with (home.run / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_already_running(home)) from None
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
            f"ASAP Web already runs on {home.path}{who}: open {holder['address']}, or set ASAP_HOME to another folder."
        )
    return f"ASAP Web is just starting on {home.path}{who}: wait for it, or set ASAP_HOME to another folder."
