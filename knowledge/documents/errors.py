"""The one way a document fails: a sentence for the person who added it."""

from __future__ import annotations

LONGEST = 300


class DocumentError(Exception):
    """A file cannot be taken or read; one sentence that says what is wrong and what to do.

    too_large: it is over a limit.
    """

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
        super().__init__(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…")
        self.too_large = too_large
