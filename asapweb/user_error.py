"""What the command line says when the user can mend it."""

from __future__ import annotations


class UserError(Exception):
    """One sentence for the user: what is wrong, where, what to do.  `str()` is one line of at most 300 characters."""

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(text if len(text) <= 300 else text[:299] + "…")
