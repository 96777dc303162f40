"""Stopping a run from outside, and its clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class Cancel:
    """A stop button: `set()` from any thread ends the run at once, also one that waits for the model.

    Whatever can be interrupted registers with `calling`; a callback is called at most once, from the thread that sets.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleeps for `timeout_s`, or until set; returns whether it is set."""
        return self._event.wait(timeout_s)

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `set()` calls the callback; at once where it is set already."""
        with self._lock:
            already = self._event.is_set()
            if not already:
                self._callbacks.append(callback)
        if already:
            callback()
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)


def _wait(seconds_s: float, cancel: Cancel) -> None:
    cancel.wait(seconds_s)


@dataclass(frozen=True)
class Clock:
    """now: monotonic seconds.  sleep: waits for so many seconds, or until cancelled."""

    now: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float, Cancel], None] = field(default=_wait)
