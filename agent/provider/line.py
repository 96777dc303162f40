"""The connection of one request, which another thread can cut: a deadline, or a stop button."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from agent.control import Cancel


class Line:
    """The socket under a request, from the moment it is connected.

    A thread that waits in `recv` is not woken by closing the socket, but by shutting it down; so the socket is caught
    through the HTTP client's trace of its connections.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: list[Any] = []
        self.cut_by: Literal["cancel", "deadline"] | None = None

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """The `trace` extension of a request."""
        stream = info.get("return_value")
        if not hasattr(stream, "get_extra_info"):
            return
        with self._lock:
            self._streams.append(stream)
            cut = self.cut_by is not None
        if cut:
            _shut(stream)

    def cut(self, by: Literal["cancel", "deadline"]) -> None:
        with self._lock:
            self.cut_by = self.cut_by or by
            streams = list(self._streams)
        for stream in streams:
            _shut(stream)

    @contextmanager
    def guarded(self, timeout_s: float, cancel: Cancel) -> Iterator[None]:
        """While the block runs the line is cut after `timeout_s`, and when cancelled."""
        timer = threading.Timer(max(timeout_s, 0.0), self.cut, ("deadline",))
        timer.daemon = True
        timer.start()
        try:
            with cancel.calling(self._cancelled):
                yield
        finally:
            timer.cancel()

    def _cancelled(self) -> None:
        self.cut("cancel")


def _shut(stream: Any) -> None:
    sock = stream.get_extra_info("socket")
    if isinstance(sock, socket.socket):
        with suppress(OSError):
            # Not SSLSocket.shutdown: that drops the TLS state under the thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
