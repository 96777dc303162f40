"""Processes that outlived a launcher, found by a mark in their environment that their children inherit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from formatting.numbers import whole_number

MARK = "ASAP_LAUNCHED_FROM"
PIECE_MARK = "ASAP_PIECE"


def find_marked(home: Path, piece: str | None = None) -> list[int]:
    """Process ids with our mark for this data folder, of one piece or of all; never our own."""
    wanted = [f"{MARK}={home}".encode()]
    if piece is not None:
        wanted.append(f"{PIECE_MARK}={piece}".encode())
    pids = []
    for entry in Path("/proc").iterdir():
        pid = whole_number(entry.name)
        if pid is None or pid == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or not ours
            continue
        if all(mark in environment for mark in wanted):
            pids.append(pid)
    return pids


def end_marked(home: Path, piece: str | None = None, patience_s: float = 5.0) -> int:
    """Ask them to end, then make them; returns how many there were."""
    first = find_marked(home, piece)
    deadline = time.monotonic() + patience_s
    remaining, number = first, signal.SIGTERM
    while remaining:
        for pid in remaining:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
        remaining = find_marked(home, piece)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
    return len(first)
