"""`/healthz`: the server answers.  `/readyz`: so do the database and the broker, and the disk has room.

They stand before everything else: a probe knows neither the site's host name nor TLS.
"""

from __future__ import annotations

import time
from asyncio import iscoroutinefunction
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from kombu import Connection
from kombu.exceptions import OperationalError

from disk import space
from formatting import plain

#: What fills the disk, and when that was looked at, by the monotonic clock.
FILLED_KEPT_S = 60.0
_filled: tuple[float, str] | None = None


@sync_and_async_middleware
def health_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            if request.path == "/readyz":
                return await sync_to_async(_ready)(request)
            if request.path == "/healthz":
                return _healthy(request)
            response: HttpResponseBase = await get_response(request)
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        if request.path == "/readyz":
            return _ready(request)
        response: HttpResponseBase = _healthy(request) if request.path == "/healthz" else get_response(request)
        return response

    return synchronous


def _healthy(request: HttpRequest) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


def _ready(request: HttpRequest) -> HttpResponse:
    """200 with every part "ok", or 503; says which part is missing, never how it is reached."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    parts = {"database": _database(), "broker": _broker(), "disk": _disk()}
    status = 200 if set(parts.values()) == {"ok"} else 503
    return JsonResponse(parts, status=status, headers={"Cache-Control": "no-store"})


def _disk() -> str:
    """What is wrong with the disk of the data folder, and what fills it; that takes a while, so it is kept a minute."""
    global _filled
    home = Path(settings.ASAP_HOME)
    free, keep = space.free_bytes(home), space.keep_free_bytes()
    if free >= keep:
        return "ok"
    now = time.monotonic()
    if _filled is None or now - _filled[0] > FILLED_KEPT_S:
        _filled = now, space.largest(home)
    holds = f"; the data folder holds {_filled[1]}" if _filled[1] else ""
    return f"{plain(free, 'bytes')} free; below {plain(keep, 'bytes')}, uploads and analyses are refused{holds}"


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except DatabaseError:
        return "no answer"
    finally:
        connection.close_if_unusable_or_obsolete()
    return "ok"


def _broker() -> str:
    try:
        with Connection(settings.CELERY_BROKER_URL, connect_timeout=2) as broker:
            broker.ensure_connection(max_retries=1, timeout=2)
            _ = broker.default_channel  # a socket alone is no broker
    except (OperationalError, OSError):
        return "no answer"
    return "ok"
