"""Confined processes (`jobs.child.start`) that fork from one which has already imported what they need.

Importing is nearly all that reading a small profile costs.  A fork is a process of its own all the same: in its own
session, under its own limits, with its own environment, and ended by a signal.  Tests of the confinement itself start
theirs as in production (`fresh_processes`).
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from jobs import child
from jobs.child_environment import confined

WORKERS = ("experiments.ingest.worker", "knowledge.documents.worker")
#: What they import once they are confined.
IMPORTED = (
    *WORKERS, "experiments.ingest.tasks", "xprof.convert._pywrap_profiler_plugin", "xprof.protobuf.op_stats_pb2",
    "knowledge.documents.pdf", "knowledge.documents.markdown", "knowledge.documents.plain",
)  # fmt: skip
MOST_BYTES = 100_000
#: Above what a process has open that was just started.
FREE_FD = 400
fresh = child.start


class Forked:
    """What is used of `subprocess.Popen`."""

    def __init__(self, said: socket.socket) -> None:
        self._said = said
        self.pid = int(said.recv(MOST_BYTES))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._said.settimeout(timeout)
            try:
                self.returncode = int(self._said.recv(MOST_BYTES))
            except (TimeoutError, BlockingIOError):  # the latter where there is no time at all
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._said.close()
        return self.returncode


class Warmed:
    """Starts the one that has imported everything with the first process that is asked of it."""

    def __init__(self) -> None:
        self._asked: socket.socket | None = None

    def start(
        self,
        module: str,
        *arguments: str,
        folder: Path,
        errors: IO[bytes],
        pass_fds: tuple[int, ...] = (),
        piped: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Forked | subprocess.Popen[bytes]:
        if piped or module not in WORKERS:
            return fresh(
                module, *arguments, folder=folder, errors=errors, pass_fds=pass_fds, piped=piped, variables=variables
            )
        if self._asked is None:
            self._asked = self._begin()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "module": module, "arguments": arguments, "folder": str(folder), "environment": confined(folder),
            "parent": os.getpid(), "pass_fds": pass_fds,
        }  # fmt: skip
        with theirs:
            fds = [theirs.fileno(), errors.fileno(), *pass_fds]
            socket.send_fds(self._asked, [json.dumps(request).encode()], fds)
        return Forked(ours)

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = f"import sys; sys.path.insert(0, {str(child.PROJECT)!r}); from tests.warm import serve; serve()"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program], stdin=theirs, env=confined(Path(tempfile.gettempdir()))
            )
        return ours

    def end(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._process.wait()


def serve() -> None:
    """Forks a process for each request on standard input, until the other end closes."""
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(fileno=os.dup(0)) as asked:
        while True:
            request, fds, _, _ = socket.recv_fds(asked, MOST_BYTES, 8)
            if not request:
                return
            if os.fork() == 0:
                try:
                    _wait_for(json.loads(request), fds)
                finally:
                    os._exit(1)
            for fd in fds:
                os.close(fd)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _wait_for(request: dict[str, Any], fds: list[int]) -> None:
    """Fork once more, and say how it ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # with the one that forked us
    said = socket.socket(fileno=fds[0])
    pid = os.fork()
    if pid == 0:
        _work(request, said, fds[1:])
    for fd in fds[1:]:
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):  # nobody waits any longer
        said.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _work(request: dict[str, Any], said: socket.socket, fds: list[int]) -> None:
    """Become what `jobs.child.start` starts."""
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    said.send(str(os.getpid()).encode())
    said.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    wanted = [2, *request["pass_fds"]]
    for free, fd in [(fcntl.fcntl(fd, fcntl.F_DUPFD, FREE_FD), fd) for fd in fds]:
        os.close(fd)
        os.dup2(free, wanted.pop(0))
        os.close(free)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.getppid = lambda: request["parent"]  # type: ignore[method-assign]  # ours is the one who waits
    sys.argv = ["-c", *request["arguments"]]
    code = 1
    try:
        importlib.import_module(request["module"]).main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
