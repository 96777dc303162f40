"""Processes that work for this one: `start` runs a module of ours that confines itself, `launch` and `run` a program.

The only module that starts processes (`ruff` refuses `subprocess` elsewhere).  Each gets an environment built from a
list of what it needs (`jobs.child_environment`).  Imports nothing but the standard library and that list: what a
confined process loads counts against its limits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from jobs.child_environment import confined

Process = subprocess.Popen[bytes]
Done = subprocess.CompletedProcess
TimeoutExpired = subprocess.TimeoutExpired
DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT

PROJECT = Path(__file__).resolve().parents[1]


def start(
    module: str,
    *arguments: str,
    folder: Path,
    errors: IO[bytes],
    pass_fds: tuple[int, ...] = (),
    piped: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Process:
    """Run `main` of a module in a session of its own, in `folder` and with `variables` in place of our environment.

    errors: where it complains.  piped: whether we talk to it, and it to us.
    """
    return launch(
        [
            sys.executable, "-I", "-c",
            f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from {module} import main; main()", *arguments,
        ],
        {**confined(folder), **(variables or {})},
        folder=folder,
        stdin=PIPE if piped else DEVNULL,
        stdout=PIPE if piped else DEVNULL,
        stderr=errors,
        pass_fds=pass_fds,
    )  # fmt: skip


def launch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    stdin: int = DEVNULL,
    stdout: int | IO[bytes] = DEVNULL,
    stderr: int | IO[bytes] = DEVNULL,
    pass_fds: tuple[int, ...] = (),
    own_session: bool = True,
) -> Process:
    """Start a program and return while it runs.  own_session: it does not get the signals of our terminal."""
    return subprocess.Popen(
        command, env=environment, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds,
        start_new_session=own_session,
    )  # fmt: skip


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    given: bytes = b"",
    timeout_s: float | None = None,
) -> Done[bytes]:
    """Run a program to its end, with `given` as its standard input.

    Raises OSError where it cannot be started, TimeoutExpired where it takes longer.
    """
    return subprocess.run(
        command, env=environment, cwd=folder, input=given, capture_output=True, timeout=timeout_s, check=False
    )


def run_text(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> Done[str]:
    """Run a program to its end as `run` does; what it printed, as text."""
    done = run(command, environment, folder=folder, timeout_s=timeout_s)
    out, errors = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, errors)


def lines(
    out: IO[bytes], deadline: float, look: Callable[[], object] = bool, *, every_s: float, longest: int
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


def end(process: Process) -> None:
    """Kill the process, started in a session of its own, with everything that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(errors: IO[bytes], most_bytes: int = 8000) -> str:
    """The end of what a process wrote to a file."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(size - most_bytes, 0))
    return errors.read().decode("utf-8", "replace")
