"""A response's body up to a length: a server may send without end."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2


class ResponseTooLong(httpx2.HTTPError):
    """The response is longer than any answer, or compressed, so that its length is not known before it is unpacked."""


class BoundedStream(httpx2.SyncByteStream):
    """The body of a response; raises ResponseTooLong after `longest_bytes`."""

    def __init__(self, body: httpx2.SyncByteStream, longest_bytes: int) -> None:
        self._body = body
        self._left_bytes = longest_bytes

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            self._left_bytes -= len(part)
            if self._left_bytes < 0:
                raise ResponseTooLong("longer than any answer")
            yield part

    def close(self) -> None:
        self._body.close()
