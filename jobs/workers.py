"""Which process holds a piece of work, whether it is still there, and what says so meanwhile."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import Error, connection

logger = logging.getLogger(__name__)

#: Who holds a piece of work says so this often.
HEARTBEAT_EVERY_S = 5.0


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


def this_thread() -> str:
    """Name of the calling thread, where a process holds several pieces of work; at most 100 characters."""
    return f"{this_process()}/{threading.get_ident()}"[:100]


def is_known_dead(worker: str) -> bool:
    """True where the named process (or that of the named thread) ran on this machine and is gone; False where it lives
    or cannot be judged."""
    try:
        host, space, pid, started = worker.split("/")[:4]
        number = int(pid)
    except ValueError:
        return False
    if host != socket.gethostname()[:40] or space != _space() or space == "0":
        return False
    return _started(number) != started


@contextmanager
def beside(name: str, *duties: tuple[float, Callable[[], object]]) -> Iterator[None]:
    """While the block runs, do each duty every so many seconds in a thread, and on a connection, of its own.

    Where the database is away a duty is tried again soon: a worker that lives is not to look dead.
    """
    stop = threading.Event()

    def attend() -> None:
        due = [time.monotonic() + every_s for every_s, _ in duties]
        try:
            while not stop.wait(max(0.0, min(due) - time.monotonic())):
                for at, (every_s, duty) in enumerate(duties):
                    if time.monotonic() < due[at]:
                        continue
                    due[at] = time.monotonic() + every_s
                    try:
                        duty()
                    except Error:
                        due[at] = time.monotonic() + max(every_s, HEARTBEAT_EVERY_S)
                        logger.warning("%s: the database could not be asked", name, exc_info=True)
                        connection.close()
        finally:
            connection.close()

    thread = threading.Thread(target=attend, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)


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
