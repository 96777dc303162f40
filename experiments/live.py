"""Server-sent events of rows that change: who watches them, and how a stream follows one of them.

All streams of a process share one watcher: a single query asks for the state of every watched row, and only streams
with news read theirs.  So a hundred open pages cost one database connection and a few queries a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections
from django.http import StreamingHttpResponse

T = TypeVar("T")
P = TypeVar("P")

POLL_EVERY_S = 0.25
KEEP_ALIVE_EVERY_S = 15.0
#: A stream ends after this long, and the browser asks again from its last event: nothing stays open for days.
MAX_STREAM_S = 1800.0


@dataclass
class Watcher:
    """Wakes the streams of one event loop whose row has news.

    look: the present state of each watched row, by key; news is whatever differs from the last look.  Its thread is the
    only one that reads for the streams, so all of them together hold one connection; it is given back when the last
    stream ends.
    """

    look: Callable[[list[int]], list[tuple[int, Any]]]
    every_s: float = POLL_EVERY_S
    waiting: dict[int, set[asyncio.Event]] = field(default_factory=dict)
    newest: dict[int, Any] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    executor: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="event-stream")
    )

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *args)

    def add(self, key: int) -> asyncio.Event:
        news = asyncio.Event()
        self.waiting.setdefault(key, set()).add(news)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._watch(), name="event-stream-watcher")
        return news

    def remove(self, key: int, news: asyncio.Event) -> None:
        streams = self.waiting.get(key, set())
        streams.discard(news)
        if not streams:
            self.waiting.pop(key, None)
            self.newest.pop(key, None)

    async def _watch(self) -> None:
        try:
            while self.waiting:
                try:
                    states = await self.read(self.look, list(self.waiting))
                except DatabaseError:
                    await self.read(connections.close_all)
                    await asyncio.sleep(1.0)
                    continue
                for key, state in states:
                    if state is not None and state != self.newest.get(key):
                        self.newest[key] = state
                        for news in self.waiting.get(key, ()):
                            news.set()
                await asyncio.sleep(self.every_s)
        finally:
            self.executor.submit(connections.close_all)


@dataclass(frozen=True)
class Watchers:
    """One watcher per event loop, of the same kind of row."""

    look: Callable[[list[int]], list[tuple[int, Any]]]
    every_s: float = POLL_EVERY_S
    of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Watcher] = field(default_factory=WeakKeyDictionary)

    def here(self) -> Watcher:
        return self.of_loop.setdefault(asyncio.get_running_loop(), Watcher(self.look, self.every_s))


@dataclass(frozen=True)
class Part(Generic[P]):
    """What a stream sends next, in the wire format, and the place that this leads to.

    over: nothing will come any more.  more: there is more to read at once.
    """

    messages: list[str]
    place: P
    over: bool = False
    more: bool = False


async def follow(
    watchers: Watchers, key: int, place: P, read: Callable[[int, P], Part[P]], retry_ms: int = 2000
) -> AsyncIterator[str]:
    """Everything that comes after `place` of the row `key`, in the wire format, until it is over.

    read: what comes after a place, called in the watcher's thread.  retry_ms: after which a browser asks again.
    """
    loop = asyncio.get_running_loop()
    watcher = watchers.here()
    news = watcher.add(key)
    ends_at = loop.time() + MAX_STREAM_S
    try:
        yield f"retry: {retry_ms}\n\n"
        while loop.time() < ends_at:
            news.clear()
            try:
                part = await watcher.read(read, key, place)
            except DatabaseError:  # the database restarts; the watcher closes the broken connection
                await asyncio.sleep(1.0)
                continue
            place = part.place
            for text in part.messages:
                yield text
            if part.over:
                return
            if part.more:
                continue
            while True:
                try:
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE_EVERY_S)
                    break
                except TimeoutError:
                    yield ": keep-alive\n\n"
                    if loop.time() >= ends_at:
                        break
    finally:
        watcher.remove(key, news)


def response(messages: AsyncIterator[str]) -> StreamingHttpResponse:
    """The stream as a response that nothing on the way keeps or gathers."""
    answer = StreamingHttpResponse(messages, content_type="text/event-stream")
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


async def one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces as they are asked for: the server would collect those of a plain iterator first."""
    while piece := await sync_to_async(lambda: next(filter(None, pieces), b""), thread_sensitive=False)():
        yield piece
