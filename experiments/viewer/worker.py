"""Runs in the sandbox: unpacks a profile, and serves XProf's pages for it on a Unix socket."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.limits import Limits
from jobs.confinement import confine

SOCKET = "xprof.sock"
SESSION = "plugins/profile/profile"
#: How often the process looks whether it is still wanted.
LOOK_EVERY_S = 1.0


def main() -> None:
    """`JOB_FILE` on the command line, a pipe from the parent as standard input; says `ready` on standard output."""
    job = json.loads(Path(sys.argv[1]).read_text())
    limits = Limits(**job["limits"])
    confine(
        job["parent"], folder=Path(job["folder"]), reads=[Path(path) for path, _ in job["uploads"]],
        memory_bytes=limits.memory_bytes, cpu_s=limits.cpu_s, file_bytes=limits.unpacked_bytes,
        with_parent_thread=False,
    )  # fmt: skip
    last = [float("inf")]  # nobody can ask before it is ready
    threading.Thread(target=_until_unwanted, args=(last, job["idle_s"], job["wall_s"]), daemon=True).start()
    folder = Path(job["folder"])
    try:
        _lay_out(job["uploads"], folder, limits)
    except IngestError as error:
        _say({"error": error.message, "next_step": error.next_step})
        return
    application = _application(folder)

    def counted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        last[0] = time.monotonic()
        try:
            answer: Iterable[bytes] = application(environ, start_response)
            return answer
        finally:
            last[0] = time.monotonic()

    from cheroot import wsgi

    server = wsgi.Server(str(folder / SOCKET), counted, numthreads=4, timeout=60)
    server.prepare()
    last[0] = time.monotonic()
    _say({"ready": True})
    server.serve()


def _say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _lay_out(uploads: list[list[str]], folder: Path, limits: Limits) -> None:
    """The profiles of the uploads as XProf wants them: `plugins/profile/<session>/HOST.xplane.pb`."""
    from experiments.ingest.archives import unpack
    from experiments.ingest.convert import session_file
    from experiments.ingest.validate import file_host

    session = folder / "log" / SESSION
    session.mkdir(parents=True)
    contents = unpack([(Path(path), name) for path, name in uploads], folder, limits)
    if contents.files[0].kind == "json":
        raise IngestError(
            "XProf's pages need the profile itself; these files are exported tables.",
            "Upload HOST.xplane.pb.",
        )
    taken: set[str] = set()
    for file in contents.files:
        session_file(session, file_host(file.name), taken).symlink_to(file.path.resolve())


def _application(folder: Path) -> Callable[..., Any]:
    """XProf's pages and data routes; without its gRPC workers, which listen on a port for everybody."""
    from xprof import profile_plugin_loader
    from xprof.server import make_wsgi_app
    from xprof.standalone import base_plugin, plugin_event_multiplexer

    log = str(folder / "log")
    provider = plugin_event_multiplexer.DataProvider(log)
    context = base_plugin.TBContext(log, provider, base_plugin.TBContext.Flags(False))
    context.hide_capture_profile_button = True
    application: Callable[..., Any] = make_wsgi_app(profile_plugin_loader.ProfilePluginLoader().load(context))
    return application


def _until_unwanted(last: list[float], idle_s: float, wall_s: float) -> None:
    """End the process when the parent's end of the pipe closes, nobody asks for idle_s, or wall_s have passed."""
    gone = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        gone.set()

    threading.Thread(target=watch, daemon=True).start()
    began = time.monotonic()
    while not gone.wait(LOOK_EVERY_S):
        now = time.monotonic()
        if now - last[0] > idle_s or now - began > wall_s:
            break
    os._exit(0)
