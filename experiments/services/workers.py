"""Which process holds a run, and whether it is still there."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkerName:
    """A process, named so that another one on the same machine can see that it died.

    space: the PID namespace, so that two containers with one host name are not mistaken for each other.
    started: start time of the process in clock ticks, so that a reused PID is not mistaken for the old process.
    """

    host: str
    space: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host}/{self.space}/{self.pid}/{self.started}"


def this_process() -> str:
    """Name of the calling process, at most 100 characters."""
    pid = os.getpid()
    return str(WorkerName(socket.gethostname()[:40], _space(), pid, _started(pid) or "0"))


def is_known_dead(worker: str) -> bool:
    """True where the named process ran on this machine and is gone; False where it lives or cannot be judged."""
    try:
        host, space, pid, started = worker.split("/")
        number = int(pid)
    except ValueError:
        return False
    if host != socket.gethostname()[:40] or space != _space() or space == "0":
        return False
    return _started(number) != started


def _space() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"  # no /proc: only the heartbeat tells


def _started(pid: int) -> str | None:
    """Start time of a live process; None if there is none, or only its remains wait to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else fields[19]
