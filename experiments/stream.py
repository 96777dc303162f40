"""The live stream of an experiment's events (server-sent events), resumable by `Last-Event-ID`."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_GET
from rest_framework.exceptions import AuthenticationFailed

from accounts.confinement import TokenAuthentication
from accounts.models import Role
from accounts.permissions import get_for
from experiments import live
from experiments.live import Part, Watchers
from experiments.models import Experiment, RunStatus
from experiments.services import events
from formatting.numbers import whole_number

BATCH = 500

_NEWEST = """
SELECT watched.id,
       (SELECT max(event.id) FROM experiments_event event WHERE event.experiment_id = watched.id)
FROM unnest(%s::bigint[]) AS watched (id)
"""


def _newest(experiment_ids: list[int]) -> list[tuple[int, int | None]]:
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [experiment_ids])
        return cursor.fetchall()


_WATCHERS = Watchers(_newest)


def _read(experiment_id: int, last_id: int) -> Part[int]:
    """The events after `last_id`; over where the experiment's newest run has ended and no event is left."""
    # The state before the events: an event that ends the run commits together with it.
    state = Experiment.objects.filter(pk=experiment_id).values_list("state", flat=True).first()
    items = [events.to_json(event) for event in events.after(experiment_id, last_id)[:BATCH]]
    full = len(items) == BATCH
    last_id = items[-1]["id"] if items else last_id
    messages = [message(item) for item in items]
    over = state is None or (RunStatus(state).is_final and not full)
    if over:
        messages.append(f"id: {last_id}\nevent: end\ndata: {{}}\n\n")
    return Part(messages, last_id, over, full)


class SignedOut(Exception):
    """Neither a session nor a token says who asks."""


def authenticated_user(request: HttpRequest) -> Any:
    """Whom the session, or else the API token, stands for; raises SignedOut."""
    if request.user.is_authenticated:
        return request.user
    try:
        authenticated = TokenAuthentication().authenticate(request)
    except AuthenticationFailed:
        authenticated = None
    if authenticated is None:
        raise SignedOut
    return authenticated[0]


def _allowed(request: HttpRequest, pk: int, last_id: int) -> bool:
    """Check permission (raising) and whether anything is left to stream; gives this request's connection back."""
    try:
        experiment = get_for(
            authenticated_user(request), Experiment.objects.only("pk", "team_id", "state"), Role.VIEWER, pk=pk
        )
        return not (RunStatus(experiment.state).is_final and not events.after(pk, last_id).exists())
    finally:
        connections.close_all()  # the stream may stay open for long, and reads through the watcher


def last_event_id(request: HttpRequest) -> int | None:
    """Where to go on: the browser's `Last-Event-ID`, else `?after=` of the page, else the start; None if no number."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("after") or "0"
    return whole_number(text)


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
    return live.response(live.follow(_WATCHERS, pk, last_id, _read))


def message(item: dict[str, Any]) -> str:
    """One event in the wire format; JSON has no raw line breaks, so one `data` line holds it."""
    return f"id: {item['id']}\nevent: {item['kind']}\ndata: {json.dumps(item)}\n\n"
