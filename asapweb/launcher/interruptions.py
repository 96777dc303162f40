"""The signals that end the launcher, as one exception at any point."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Ctrl-C, SIGTERM, or the terminal closed."""


class Interruptions:
    """seen: a signal that ends us came; it is raised once, since it may come while we end already."""

    def __init__(self) -> None:
        self.seen = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self.seen:
            self.seen = True
            raise Interrupted

    def heed(self) -> None:
        """Python drops what is raised while it runs a finaliser, as between two lines of ours: raise it again."""
        if self.seen:
            raise Interrupted


@contextmanager
def interruptible() -> Iterator[Interruptions]:
    """Turn the signals that end us into one exception each time `seen` is unset."""
    interruptions = Interruptions()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interruptions.interrupt) for number in numbers}
    try:
        yield interruptions
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
