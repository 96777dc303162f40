"""Refuses a request body above the limit before it fills the disk: Django spools the whole body before any view."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asapweb.error_pages import wants_json

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


#: How many times the limit is read and thrown away, so that a client that is still sending gets its answer.
DRAINED = 4


class BodyLimit:
    """ASGI application around another one: 413 with one sentence once a body is longer than `limit_bytes`."""

    def __init__(self, application: Application, limit_bytes: int) -> None:
        self.application = application
        self.limit_bytes = limit_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        if _announced(scope) > self.limit_bytes:
            await self._refuse(scope, receive, send, 0)
            return
        received = 0
        answered = refused = False

        async def counted() -> Message:
            nonlocal received, refused
            if refused:
                return {"type": "http.disconnect"}
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit_bytes and not answered:
                refused = True
                await self._refuse(scope, receive, send, received)
                return {"type": "http.disconnect"}
            return message

        async def answer(message: Message) -> None:
            nonlocal answered
            if not refused:
                answered = True
                await send(message)

        await self.application(scope, counted, answer)

    async def _refuse(self, scope: Message, receive: Receive, send: Send, received: int) -> None:
        more = True
        while more and received <= DRAINED * self.limit_bytes:
            message = await receive()
            received += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        limit = f"{self.limit_bytes / 1e6:,.0f} MB"
        sentence = f"The upload is larger than {limit}: send fewer steps, or raise ASAP_MAX_UPLOAD_MB."
        accepted = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        as_json = wants_json(scope["path"], accepted)
        text = (json.dumps({"detail": sentence}) if as_json else sentence + "\n").encode()
        content_type = b"application/json" if as_json else b"text/plain; charset=utf-8"
        headers = [(b"content-type", content_type), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def _announced(scope: Message) -> int:
    """The Content-Length; 0 for a body in chunks, which says so only by arriving."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
