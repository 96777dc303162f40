"""A cache of the values used last, of one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")
_MISSING = object()


class LruCache:
    """The values used last.  Each is made once, outside the lock that others wait for: two requests for one value read
    what one makes, and requests for other values do not wait for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.value is _MISSING:
                entry.value = make()  # what fails is tried again by the next
            value: T = entry.value
        return value


class _Entry:
    def __init__(self) -> None:
        self.lock = Lock()
        self.value: Any = _MISSING
