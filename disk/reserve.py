"""A file that holds space for an emergency: given up when the disk is nearly full, made again once there is room.

Uploads stop long before (`disk.space`); the reserve is for what nobody asks: another program, a growing database.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from disk.space import free_bytes, keep_free_bytes, largest
from formatting import plain

#: Of the space kept free: how much is left when the reserve is given up, and how large the reserve is.
EMERGENCY_SHARE, RESERVE_SHARE = 1 / 3, 2 / 3


@dataclass
class Reserve:
    """The reserve of one disk.  folder: where its file lies.  short: as last reported."""

    folder: Path
    short: bool = False

    @property
    def file(self) -> Path:
        return self.folder / "reserve"

    @property
    def size_bytes(self) -> int:
        return int(keep_free_bytes() * RESERVE_SHARE)

    @property
    def emergency_bytes(self) -> int:
        return int(keep_free_bytes() * EMERGENCY_SHARE)

    def tend(self) -> str:
        """Give it up or make it, as the disk has room; a sentence where what is accepted changed, else nothing."""
        free = free_bytes(self.folder)
        given_up = free < self.emergency_bytes and self.give_up()
        if not self.file.exists() and free >= keep_free_bytes() + self.size_bytes:
            self._make()
        was_short, self.short = self.short, free < keep_free_bytes()
        if given_up or (self.short and not was_short):
            filled = largest(self.folder)
            return (
                f"Only {plain(free, 'bytes')} are free on the disk of {self.folder}"
                f"{f' ({filled})' if filled else ''}: uploads and analyses are refused until space is "
                f"freed{'; the reserve has been released' if given_up else ''}."
            )
        if was_short and not self.short:
            return f"{plain(free, 'bytes')} are free on the disk of {self.folder}: uploads are accepted again."
        return ""

    def give_up(self) -> bool:
        """Whether there was one."""
        try:
            self.file.unlink()
        except OSError:
            return False
        return True

    def _make(self) -> None:
        partial = self.file.with_suffix(".part")
        try:
            with os.fdopen(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            partial.rename(self.file)
        except OSError:  # no room after all
            partial.unlink(missing_ok=True)
