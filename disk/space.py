"""How much room is left, and how much of it is kept for the services.

Below the kept space nothing large is taken any more: uploads and analyses are refused with a sentence, so that the
database goes on writing decisions, answers and whatever makes room again.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from formatting import plain

#: Kept free for PostgreSQL, the queue and logs, in bytes; ASAP_KEEP_FREE_MB changes it.
DEFAULT_KEEP_FREE_BYTES = 300 * 10**6
MAKE_ROOM = "delete unneeded experiments or ask the operator to free space, then try again"
POSTGRES_DISK_FULL = "53100"


class NoSpace(Exception):
    """There is no room for what was asked for.  The text is a sentence for the user."""


def keep_free_bytes() -> int:
    given = os.environ.get("ASAP_KEEP_FREE_MB", "").strip()
    return int(float(given) * 1e6) if given else DEFAULT_KEEP_FREE_BYTES


def free_bytes(folder: Path) -> int:
    """Free for us on the disk of the folder, or of the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require(folder: Path, needed_bytes: int = 0, what: str = "The upload") -> None:
    """Raises NoSpace where taking so many bytes would reach into what is kept.  what: as the sentence begins."""
    free, keep = free_bytes(folder), keep_free_bytes()
    if free - needed_bytes >= keep:
        return
    raise NoSpace(refusal(what, free, needed_bytes, keep))


def refusal(what: str, free: int, needed_bytes: int, keep: int) -> str:
    needs = f"{what} needs {plain(needed_bytes, 'bytes')}" if needed_bytes >= 10**6 else f"{what} needs space"
    return (
        f"{needs}, and the server's disk has {plain(free, 'bytes')} free, of which {plain(keep, 'bytes')} are kept for "
        f"the database: {MAKE_ROOM}."
    )


def sentence(error: BaseException) -> str:
    """For the user, of an error that is `NoSpace` or `is_full`."""
    return str(error) if isinstance(error, NoSpace) else f"The server's disk is full: {MAKE_ROOM}."


def is_full(error: BaseException | None) -> bool:
    """Whether the error, or what caused it, is a full disk or an exhausted quota: ours, or PostgreSQL's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if getattr(error, "sqlstate", None) == POSTGRES_DISK_FULL:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
