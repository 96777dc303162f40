"""Probes: `/livez` (this process answers), `/readyz` (pages can be served), `/healthz` (what is degraded), `/metrics`.

They stand before everything else: a probe knows neither the site's host name nor TLS.
"""

from __future__ import annotations

from asyncio import iscoroutinefunction
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import constant_time_compare
from django.utils.decorators import sync_and_async_middleware
from kombu import Connection
from kombu.exceptions import OperationalError

from asapweb import metrics
from disk import space
from formatting import plain


@sync_and_async_middleware
def health_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            if (probe := _PROBES.get(request.path)) is not None:
                # Whether this process answers must not depend on a free thread.
                return probe(request) if probe is _live else await sync_to_async(probe)(request)
            response: HttpResponseBase = await get_response(request)
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = _PROBES.get(request.path, get_response)(request)
        return response

    return synchronous


def _probe(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def probe(request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        response = answer(request)
        response["Cache-Control"] = "no-store"
        return response

    return probe


@_probe
def _live(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@_probe
def _ready(request: HttpRequest) -> HttpResponse:
    """Return 503 where no page can be served.

    Without a broker pages are read and jobs wait, on a full disk only uploads and analyses are refused: every replica
    is in the same place, and none of them is to be taken out.
    """
    database = database_state()
    return JsonResponse({"database": database}, status=200 if database == "ok" else 503)


@_probe
def _healthy(request: HttpRequest) -> HttpResponse:
    """Return each part with "ok" or what is wrong, never how it is reached; 200 while this can be said."""
    parts = states()
    return JsonResponse({"status": "ok" if set(parts.values()) == {"ok"} else "degraded", **parts})


@_probe
def _measured(request: HttpRequest) -> HttpResponse:
    """Return the metrics to who brings ASAP_METRICS_TOKEN; without such a token there are none."""
    wanted = settings.METRICS_TOKEN
    given = request.headers.get("Authorization", "")
    if not wanted:
        return HttpResponse("Set ASAP_METRICS_TOKEN to have metrics (docs/operation.md).\n", "text/plain", 404)
    if not constant_time_compare(given, f"Bearer {wanted}"):
        return HttpResponse("Send the token as: Authorization: Bearer TOKEN.\n", "text/plain", 401)
    return HttpResponse(metrics.exposition(states()), metrics.CONTENT_TYPE)


_PROBES = {"/livez": _live, "/readyz": _ready, "/healthz": _healthy, "/metrics": _measured}


def states() -> dict[str, str]:
    """Return "ok" or what is wrong, by part."""
    return {"database": database_state(), "broker": _broker(), "disk": _disk()}


def _disk() -> str:
    free, keep = space.free_bytes(Path(settings.ASAP_HOME)), space.keep_free_bytes()
    if free >= keep:
        return "ok"
    return f"{plain(free, 'bytes')} free; below {plain(keep, 'bytes')}, uploads and analyses are refused"


def database_state() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except DatabaseError:
        return "no answer"
    finally:
        if not connection.in_atomic_block:
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
