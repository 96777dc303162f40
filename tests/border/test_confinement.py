"""What a confined process that was taken over can reach: its folder, what it was given to read, and nothing else."""

from __future__ import annotations

import ctypes
import json
import platform
import socket
from pathlib import Path

import pytest

from jobs import child

#: The version of Landlock that knows network and signals.
COMPLETE = 6


def landlock() -> int:
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_processes")
@pytest.mark.skipif(
    landlock() < COMPLETE or platform.machine() not in ("x86_64", "aarch64"), reason="the kernel has no Landlock 6"
)
def test_confined_process_reaches_its_folder_and_what_it_may_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "canary")
    folder, data = tmp_path / "folder", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    for name in ("upload", "secret_key", "outside"):
        (data / name).write_text("secret")
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp, (tmp_path / "errors").open("w+b") as errors:
        unix.bind(str(data / "db.sock"))
        tcp.bind(("127.0.0.1", 0))
        for server in (unix, tcp):
            server.listen()
        given = [folder, data / "upload", data / "secret_key", data / "outside", data / "db.sock", tcp.getsockname()[1]]
        process = child.start("tests.border.hostile_child", *map(str, given), folder=folder, errors=errors)
        assert process.wait(60) == 0, child.tail(errors)
    tried = json.loads((folder / "result.json").read_text())
    allowed = {"own folder", "allowed file", "own socket", "library", "program"}
    assert {name for name, outcome in tried.items() if outcome == "done"} == allowed
    assert (folder / "stolen").read_text() == ""  # a program that it starts is as confined as itself
    assert [(data / name).read_text() for name in ("upload", "outside")] == ["secret", "secret"]
