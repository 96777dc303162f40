"""The live stream of an experiment's events (server-sent events), resumable by `Last-Event-ID`.

All streams of a process share one watcher: a single query asks for the newest event of every watched experiment, and
only streams with news read theirs.  So a hundred open pages cost one database connection and a few queries a second.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from accounts.models import Role
from accounts.permissions import get_for
from experiments.models import Experiment, RunStatus
from experiments.services import events

T = TypeVar("T")

POLL_EVERY_S = 0.25
KEEP_ALIVE_EVERY_S = 15.0
#: A stream ends after this long, and the browser asks again from its last event: nothing stays open for days.
MAX_STREAM_S = 1800.0
BATCH = 500

_NEWEST = """
SELECT watched.id,
       (SELECT max(event.id) FROM experiments_event event WHERE event.experiment_id = watched.id)
FROM unnest(%s::bigint[]) AS watched (id)
"""


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
                    found = await self.read(self.look, list(self.waiting))
                except DatabaseError:
                    await self.read(connections.close_all)
                    await asyncio.sleep(1.0)
                    continue
                for key, state in found:
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


def _newest(experiment_ids: list[int]) -> list[tuple[int, int | None]]:
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [experiment_ids])
        return cursor.fetchall()


_WATCHERS = Watchers(_newest)


@dataclass(frozen=True)
class Batch:
    """What a stream sends next.  over: the experiment's newest run has ended, and no event is left."""

    items: list[dict[str, Any]]
    over: bool


def _read(experiment_id: int, last_id: int) -> Batch:
    # The state before the events: an event that ends the run commits together with it.
    state = Experiment.objects.filter(pk=experiment_id).values_list("state", flat=True).first()
    items = [events.to_json(event) for event in events.after(experiment_id, last_id)[:BATCH]]
    return Batch(items, state is None or (RunStatus(state).is_final and len(items) < BATCH))


class SignedOut(Exception):
    """Neither a session nor a token says who asks."""


def who(request: HttpRequest) -> Any:
    """Whom the session, or else the API token, stands for; raises SignedOut."""
    if request.user.is_authenticated:
        return request.user
    try:
        found = TokenAuthentication().authenticate(request)
    except AuthenticationFailed:
        found = None
    if found is None:
        raise SignedOut
    return found[0]


def _allowed(request: HttpRequest, pk: int, last_id: int) -> bool:
    """Check permission (raising) and whether anything is left to stream; gives this request's connection back."""
    try:
        experiment = get_for(who(request), Experiment.objects.only("pk", "team_id", "state"), Role.VIEWER, pk=pk)
        return not (RunStatus(experiment.state).is_final and not events.after(pk, last_id).exists())
    finally:
        connections.close_all()  # the stream may stay open for long, and reads through the watcher


def last_event_id(request: HttpRequest) -> int | None:
    """Where to go on: the browser's `Last-Event-ID`, else `?after=` of the page, else the start; None if no number."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("after") or "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@require_GET
async def stream(request: HttpRequest, pk: int) -> HttpResponseBase:
    """`/experiments/<pk>/events/`: every event after the last one known, then new ones as they are appended.

    Each is `id`, `event` (the kind) and `data` (JSON).  After the last event of a run that has ended comes
    `event: end`, and the stream closes; a browser that asks again gets 204, which tells it to stop.
    """
    last_id = last_event_id(request)
    if last_id is None:
        return HttpResponse("Last-Event-ID must be a whole number.\n", status=400, content_type="text/plain")
    try:
        anything_left = await sync_to_async(_allowed)(request, pk, last_id)
    except SignedOut:
        return HttpResponse("Sign in to follow this experiment.\n", status=401, content_type="text/plain")
    if not anything_left:
        return HttpResponse(status=204)
    response = StreamingHttpResponse(_messages(pk, last_id), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


async def _messages(experiment_id: int, last_id: int) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    watcher = _WATCHERS.here()
    news = watcher.add(experiment_id)
    ends_at = loop.time() + MAX_STREAM_S
    try:
        yield "retry: 2000\n\n"
        while loop.time() < ends_at:
            news.clear()
            try:
                batch = await watcher.read(_read, experiment_id, last_id)
            except DatabaseError:  # the database restarts; the watcher closes the broken connection
                await asyncio.sleep(1.0)
                continue
            for item in batch.items:
                last_id = item["id"]
                yield message(item)
            if batch.over:
                yield f"id: {last_id}\nevent: end\ndata: {{}}\n\n"
                return
            if len(batch.items) == BATCH:
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
        watcher.remove(experiment_id, news)


def message(item: dict[str, Any]) -> str:
    """One event in the wire format; JSON has no raw line breaks, so one `data` line holds it."""
    return f"id: {item['id']}\nevent: {item['kind']}\ndata: {json.dumps(item)}\n\n"
