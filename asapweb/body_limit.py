"""What a request may send before any view sees it: Django takes the whole body first, whoever sends it.

- Nobody sends more than the limit (413).
- More than `ANYBODY_BYTES` only who is signed in or has a token (401), and only while the disk has room for it (507);
  the room that requests will still need is counted, so that two uploads do not both get the last of it.
- A body keeps coming, and not by drops (408).
- What strangers send at one time is bounded (503).

All before a byte is read where the length is announced, else as soon as it is known.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import formatting
from asapweb.error_pages import wants_json
from disk import space
from formatting.numbers import whole_number

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

#: A form, a configuration, a question: what is taken from everybody, and kept in memory.
ANYBODY_BYTES = 1_000_000
#: Of all strangers together, at one time.
STRANGERS_BYTES = 64_000_000
#: Seconds without a byte after which a body is given up, and seconds that any body may take; more with its length.
IDLE_S, ANY_LENGTH_S = 30.0, 60.0
SLOWEST_BYTES_PER_S = 16_000
#: On the disk a body lies twice: as it was received, and as the files that were read from it.
COPIES = 2
#: A refused body is read and thrown away so far, so that a client that is still sending gets its answer.
DRAINED, DRAINED_OF_STRANGERS_BYTES, DRAINED_S = 4, 16_000_000, 120.0


class BodyRefusedError(Exception):
    """A body is not taken any further; status, sentence and headers of the answer."""

    def __init__(self, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


class BodyLimit:
    """ASGI application around another one, which reads the body of a request before it answers.

    limit_bytes: of one body.  folder: where bodies are kept while they arrive, on the disk of the uploads.  is_known:
    whether the scope of a request carries a session or a token of somebody; may raise BodyRefusedError.
    """

    def __init__(
        self, application: Application, limit_bytes: int, folder: Path, is_known: Callable[[Message], Awaitable[bool]]
    ) -> None:
        self.application = application
        self.limit_bytes = limit_bytes
        self.folder = folder
        self.is_known = is_known
        self.bodies: set[Body] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        body = Body(self, scope, receive)
        self.bodies.add(body)
        is_answered = False

        async def answer(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await body.check()
            await self.application(scope, body.receive, answer)
            if body.refusal is not None:
                raise body.refusal
        except BodyRefusedError as refused:
            await body.drain(refused)
            await _say(scope, refused, send)
        except OSError as error:
            if is_answered or not space.is_full(error):
                raise
            await _say(scope, BodyRefusedError(507, space.sentence(error)), send)
        finally:
            self.bodies.discard(body)


class Body:
    """One request's body on its way."""

    def __init__(self, limit: BodyLimit, scope: Message, receive: Receive) -> None:
        self.limit = limit
        self.scope = scope
        self.source = receive
        announced = dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")
        self.announced = whole_number(announced, digits=1_000) or 0  # 0 for a body in chunks
        self.received = 0
        self.complete = False
        self.known = False
        self.began = time.monotonic()
        self.refusal: BodyRefusedError | None = None

    @property
    def length(self) -> int:
        """In bytes, as far as it is known."""
        return max(self.announced, self.received)

    @property
    def still_needs(self) -> int:
        """Bytes on the disk that it will take."""
        return COPIES * self.length - self.received if self.length > ANYBODY_BYTES else 0

    async def receive(self) -> Message:
        """Return the next message of the body, and after it that of the end of the connection; as if the client had
        gone once the body is refused, so that Django lets go of what it has of it."""
        if self.complete:
            return await self.source()
        try:
            return await self._checked()
        except BodyRefusedError as refused:
            self.refusal = refused
            return {"type": "http.disconnect"}

    async def _checked(self) -> Message:
        allowed_s = ANY_LENGTH_S + self.received / SLOWEST_BYTES_PER_S
        left_s = min(IDLE_S, self.began + allowed_s - time.monotonic())
        try:
            message = await asyncio.wait_for(self._next(), max(left_s, 0.0))
        except TimeoutError:
            sentence = "The request timed out; check the connection and send it again."
            raise BodyRefusedError(408, sentence, (b"connection", b"close")) from None
        await self.check()
        return message

    async def _next(self) -> Message:
        message = await self.source()
        self.received += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        return message

    async def check(self) -> None:
        """Raises BodyRefusedError where no more of the body is taken."""
        limit = self.limit
        if self.length > limit.limit_bytes:
            largest = formatting.limit(limit.limit_bytes, "bytes")
            sentence = f"The upload is larger than {largest}: send fewer steps, or raise ASAP_MAX_UPLOAD_MB."
            raise BodyRefusedError(413, sentence)
        if self.length > ANYBODY_BYTES and not self.known:
            self.known = await limit.is_known(self.scope)
            if not self.known:
                most = formatting.limit(ANYBODY_BYTES, "bytes")
                sentence = f"Sign in or send a valid API token to send more than {most}."
                raise BodyRefusedError(401, sentence, (b"www-authenticate", b"Token"))
        of_strangers = sum(body.received for body in limit.bodies if not body.known)
        if not self.known and of_strangers > STRANGERS_BYTES:
            sentence = "The server is receiving too many requests; try again in a minute."
            raise BodyRefusedError(503, sentence, (b"retry-after", b"60"))
        if self.still_needs:
            try:
                space.require(limit.folder, sum(body.still_needs for body in limit.bodies))
            except space.NoSpace:
                free, keep = space.free_bytes(limit.folder), space.keep_free_bytes()
                raise BodyRefusedError(507, space.refusal("The upload", free, self.still_needs, keep)) from None

    async def drain(self, refused: BodyRefusedError) -> None:
        """Read on for a while, so that a client that is still sending gets its answer; not where it waits for a word
        before it sends, or is slow."""
        waits = any(name == b"expect" for name, _ in self.scope["headers"]) and self.received == 0
        if waits or refused.status == 408:
            return
        most = DRAINED * self.limit.limit_bytes if self.known else DRAINED_OF_STRANGERS_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_S if self.known else IDLE_S):
                while not self.complete and self.received <= most:
                    await self._next()


async def _say(scope: Message, refusal: BodyRefusedError, send: Send) -> None:
    accepted = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
    as_json = wants_json(scope["path"], accepted)
    said = {"detail": refusal.sentence, "error": refusal.sentence}
    text = (json.dumps(said) if as_json else refusal.sentence + "\n").encode()
    content_type = b"application/json" if as_json else b"text/plain; charset=utf-8"
    headers = [(b"content-type", content_type), (b"content-length", str(len(text)).encode()), *refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
