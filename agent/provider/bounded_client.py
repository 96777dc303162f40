"""The HTTP client of every endpoint: no redirects, no responses without end, connections that can be cut."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import cache

import httpx2
import openai

from agent.provider.bounded_stream import BoundedStream, ResponseTooLong
from agent.provider.line import Line


def bounded_client(longest_bytes: int, line: Callable[[], Line | None]) -> httpx2.Client:
    """A client for the `openai` SDK, whose responses, errors included, are at most so long and not compressed.

    line: which one to register the next request's connection with.
    """

    def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise ResponseTooLong("compressed")  # it might unpack to any length
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = BoundedStream(response.stream, longest_bytes)
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
