"""Starts and ends the process that serves XProf's pages."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from experiments.ingest.limits import Limits
from experiments.ingest.sandbox import private_folder
from experiments.viewer.worker import SOCKET
from jobs import child

#: Processor time of one viewer: the trace viewer converts on every zoom.
CPU_S = 1200
WALL_S = 8 * 3600
IDLE_S = 600
#: How long unpacking and loading XProf may take.
START_S = 60


class ViewerError(Exception):
    """XProf cannot be started for these files.  The text is a sentence."""


@dataclass
class Viewer:
    """A running process, with its private folder and socket."""

    process: child.Process
    socket: Path
    stack: contextlib.ExitStack

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """End the process and everything it started; its folder goes with it."""
        child.end(self.process)
        self.stack.close()


def start(
    files: Sequence[tuple[Path, str]], limits: Limits | None = None, *, idle_s: float = IDLE_S, wall_s: float = WALL_S
) -> Viewer:
    """A viewer of these uploads [(path, name), …], ready to be asked.  Raises ViewerError."""
    limits = replace(limits or Limits.from_environment(), cpu_s=CPU_S)
    stack = contextlib.ExitStack()
    try:
        folder = stack.enter_context(private_folder())
        socket = folder / SOCKET
        if len(os.fsencode(socket)) > 100:  # what a Unix socket's address holds
            raise ViewerError("The path of the temporary folder is too long for a socket; set ASAP_INGEST_FOLDER.")
        job = {
            "uploads": [(str(path), name) for path, name in files], "folder": str(folder), "limits": asdict(limits),
            "parent": os.getpid(), "idle_s": idle_s, "wall_s": wall_s,
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        with (folder / "stderr").open("wb") as errors:
            process = child.start(
                "experiments.viewer.worker", str(folder / "job.json"), folder=folder, errors=errors, piped=True
            )
        viewer = Viewer(process, socket, stack)
    except BaseException:
        stack.close()
        raise
    try:
        _wait(viewer)
    except BaseException:
        viewer.stop()
        raise
    return viewer


def _wait(viewer: Viewer) -> None:
    """Until the process says that it is ready.  Raises ViewerError with what it says instead."""
    out = viewer.process.stdout
    assert out is not None
    deadline = time.monotonic() + START_S
    os.set_blocking(out.fileno(), False)
    said = b""
    while b"\n" not in said:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ViewerError(f"XProf did not start within {START_S} s.")
        if select.select([out], [], [], left)[0]:
            piece = os.read(out.fileno(), 65536)
            if not piece:
                raise ViewerError("XProf's server ended while it was starting; the files may be damaged.")
            said += piece
    answer = json.loads(said.partition(b"\n")[0])
    if "error" in answer:
        raise ViewerError(f"{answer['error']} {answer['next_step']}"[:300])
