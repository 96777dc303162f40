"""Processes that work for this one: they limit themselves at their start, are heard line by line and end as a group.

Imports nothing but the standard library: what a confined process loads counts against its limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def start(
    module: str,
    *arguments: str,
    folder: Path,
    errors: IO[bytes],
    pass_fds: tuple[int, ...] = (),
    piped: bool = False,
) -> subprocess.Popen[bytes]:
    """`main` of a module in a session of its own, which works in this folder and without our environment: no database
    address, no keys.

    errors: where it complains.  piped: whether we talk to it, and it to us.
    """
    return subprocess.Popen(
        [
            sys.executable, "-I", "-c",
            f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from {module} import main; main()", *arguments,
        ],
        stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else subprocess.DEVNULL,
        stderr=errors,
        cwd=folder,
        env=environment(folder),
        pass_fds=pass_fds,
        start_new_session=True,
    )  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # One arena per thread would spend the address space, which is what is limited.
        "MALLOC_ARENA_MAX": "2",
    }


def confine(parent: int, *, memory_bytes: int, cpu_s: int, file_bytes: int, with_parent_thread: bool = True) -> None:
    """Limit this process, and end it with its parent.

    memory_bytes: of address space; cpu_s: seconds of processor time; file_bytes: of any file that it writes.
    with_parent_thread: the kernel ends it with the thread that started it; one that outlives it watches a pipe.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if with_parent_thread:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the limits below still hold
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to be notified
    for kind, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 5),
        (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
    ):
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def lines(
    out: IO[bytes], deadline: float, look: Callable[[], object], *, every_s: float, longest: int
) -> Iterator[bytes]:
    """Whole lines until the other end closes, the deadline passes, look says that it is enough, or the talk gets
    absurdly long: a line of more than `longest` bytes, or a hundred times as many in all.

    deadline: of `time.monotonic`.  look: called again and again meanwhile, at least every every_s seconds.
    """
    os.set_blocking(out.fileno(), False)
    buffer, total = b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ready = selector.select(min(left, every_s))
            if look():
                return
            if not ready:
                continue
            chunk = os.read(out.fileno(), 65536)
            if not chunk:
                return
            total += len(chunk)
            *whole, buffer = (buffer + chunk).split(b"\n")
            yield from whole
            if total > 100 * longest or len(buffer) > longest:
                return


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, started in a session of its own, with everything that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(errors: IO[bytes], most_bytes: int = 8000) -> str:
    """The end of what a process wrote to a file."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(size - most_bytes, 0))
    return errors.read().decode("utf-8", "replace")
