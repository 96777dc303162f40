"""What the command line says when the user can mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UserError(Exception):
    """One sentence for the user: what is wrong, where, what to do.  `str()` is one line of at most 300 characters."""

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(text if len(text) <= 300 else text[:299] + "…")


@dataclass(frozen=True)
class PartialResult:
    """What a command answers although some of its files are wrong.  complaints: one sentence for each of these."""

    result: Any
    complaints: tuple[str, ...]
