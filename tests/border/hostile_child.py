"""A process that was confined and then taken over: it tries what it must not, and says what came of it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from jobs.confinement import confine


def main() -> None:
    """`FOLDER ALLOWED SECRET OUTSIDE UNIX_SOCKET TCP_PORT` on the command line; the result in FOLDER/result.json."""
    folder, allowed, secret, outside, address = map(Path, sys.argv[1:6])
    port, parent = int(sys.argv[6]), os.getppid()
    confine(parent, folder=folder, reads=[allowed], memory_bytes=2**32, cpu_s=30, file_bytes=10**6)

    def connect(family: int, kind: int, to: object) -> None:
        with socket.socket(family, kind) as client:
            client.connect(to)

    def listen_for_the_viewer() -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "own.sock"))
            server.listen()

    attempts: dict[str, Callable[[], object]] = {
        "own folder": lambda: (folder / "x").write_text("x"),
        "allowed file": allowed.read_bytes,
        "own socket": listen_for_the_viewer,
        "library": lambda: __import__("xml.dom.minidom"),
        "secret": secret.read_bytes,
        "outside": lambda: outside.write_text("x"),
        "allowed file, written": lambda: allowed.write_text("x"),
        "environment of the parent": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "signal to the parent": lambda: os.kill(parent, 0),
        "database socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, str(address)),
        "tcp": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
        "udp": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
        "program": lambda: os.system(f"cat {secret} > {folder}/stolen"),
    }
    (folder / "result.json").write_text(json.dumps({name: _outcome(attempt) for name, attempt in attempts.items()}))


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (PermissionError, ConnectionError) as error:
        return type(error).__name__
    return "done"
