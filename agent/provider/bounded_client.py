"""The HTTP client of every endpoint: no redirects, no responses without end, connections that can be cut."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from functools import cache

import httpx2
import openai

from agent.provider.line import Line


class ResponseTooLong(httpx2.HTTPError):
    """The response is longer than any answer, or compressed, so that its length is not known before it is unpacked."""


class _Bounded(httpx2.SyncByteStream):
    """The body of a response; raises ResponseTooLong after `longest_bytes`: a server may send without end."""

    def __init__(self, body: httpx2.SyncByteStream, longest_bytes: int) -> None:
        self._body, self._left_bytes = body, longest_bytes

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            self._left_bytes -= len(part)
            if self._left_bytes < 0:
                raise ResponseTooLong("longer than any answer")
            yield part

    def close(self) -> None:
        self._body.close()


def bounded_client(longest_bytes: int, line: Callable[[], Line | None]) -> httpx2.Client:
    """A client for the `openai` SDK, whose responses, errors included, are at most so long and not compressed.

    line: which one to register the next request's connection with.
    """

    def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise ResponseTooLong("compressed")  # it might unpack to any length
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Bounded(response.stream, longest_bytes)
        response.encoding = "utf-8"  # JSON has no other, and `charset=zlib` would unpack to any length

    def trace(request: httpx2.Request) -> None:
        current = line()
        if current is not None:
            request.extensions["trace"] = current.trace

    # No connection is kept: only then does each request's own connection appear in its trace and can be cut.
    return openai.DefaultHttpxClient(
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=0),
        event_hooks={"request": [trace], "response": [bound]},
        follow_redirects=False,  # what is sent, and the key, go where the operator said
        headers={"Accept-Encoding": "identity"},
        verify=_trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
    )


@cache
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The authorities that the client takes by itself, which its library reads from these: once, as that is slow."""
    return httpx2.create_ssl_context()
