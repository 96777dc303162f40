"""What the services of every app refuse, so that REST and pages answer it in one place."""

from __future__ import annotations


class Refused(Exception):
    """What was asked for cannot be done.  The text is a sentence for the user; `status` is the answer over REST."""

    status = 409

    def __init__(self, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status or self.status
