"""An answer as it is written (server-sent events), resumable at the character where it broke off.

The id of each event is `<revision>.<characters>.<steps>.<steps done>.<effects>`: all that a browser needs to go on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import TextField
from django.db.models.functions import MD5, Cast, Length, Substr
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_GET

from accounts.models import Role
from accounts.permissions import get_for
from dialogue.models import Message, Thread
from experiments import live
from experiments.live import Part, Watchers
from experiments.stream import SignedOut, authenticated_user
from formatting.numbers import whole_number

#: Text comes in pieces of this age at most.
POLL_EVERY_S = 0.04


def _state(keys: list[int]) -> list[tuple[int, Any]]:
    """What changes with everything that a stream sends."""
    rows = Message.objects.filter(pk__in=keys).annotate(
        characters=Length("text"), seen=MD5(Cast("steps", TextField())), added=MD5(Cast("effects", TextField()))
    )
    columns = ("pk", "revision", "characters", "status", "seen", "added")
    return [(row[0], row[1:]) for row in rows.values_list(*columns)]


_WATCHERS = Watchers(_state, POLL_EVERY_S)


@dataclass(frozen=True)
class Place:
    """How far a browser has read."""

    revision: int = 0
    characters: int = 0
    steps: int = 0
    done: int = 0
    effects: int = 0

    @classmethod
    def parse(cls, text: str) -> Place | None:
        numbers = [number for part in text.split(".") if (number := whole_number(part, digits=9)) is not None]
        return cls(*numbers) if len(numbers) == text.count(".") + 1 == 5 else None

    def __str__(self) -> str:
        return f"{self.revision}.{self.characters}.{self.steps}.{self.done}.{self.effects}"


def steps_done(steps: list[dict[str, Any]]) -> int:
    return sum(step["ok"] is not None for step in steps)


def read(pk: int, place: Place) -> Part[Place]:
    """What came after `place`; text that was withdrawn meanwhile is announced by `reset`."""
    columns = ("revision", "status", "steps", "effects", "note", "provider")
    rest = Substr("text", place.characters + 1)
    row = Message.objects.filter(pk=pk).annotate(rest=rest).values(*columns, "rest").first()
    if row is None:
        return _part([("end", {"status": "gone"})], place, True)
    events: list[tuple[str, dict[str, Any]]] = []
    if row["revision"] != place.revision:
        place = Place(row["revision"])
        events.append(("reset", {}))
        row["rest"] = Message.objects.filter(pk=pk).values_list("text", flat=True).first() or ""
    done = steps_done(row["steps"])
    if len(row["steps"]) > place.steps or done > place.done:
        events.append(("steps", {"steps": row["steps"]}))
    if row["rest"]:
        events.append(("text", {"at": place.characters, "text": row["rest"]}))
    if len(row["effects"]) > place.effects:
        events.append(("effects", {"effects": row["effects"][place.effects :]}))
    place = Place(place.revision, place.characters + len(row["rest"]), len(row["steps"]), done, len(row["effects"]))
    over = Message.Status(row["status"]).is_final
    if over:
        events.append(("end", {"status": row["status"], "note": row["note"], "provider": row["provider"]}))
    return _part(events, place, over)


def _find(request: HttpRequest, pk: int) -> bool:
    """Whether the answer is one the user may read (raises otherwise)."""
    try:
        message = Message.objects.filter(pk=pk, role=Message.Role.ASSISTANT).values("thread_id").first()
        thread = message["thread_id"] if message else 0
        get_for(authenticated_user(request), Thread.objects.only("pk", "team_id"), Role.VIEWER, pk=thread)
        return True
    finally:
        connections.close_all()  # the stream may stay open for long, and reads through the watcher


@require_GET
async def stream(request: HttpRequest, pk: int) -> HttpResponseBase:
    """`/answers/<pk>/stream/`: events `text` {at, text}, `steps`, `effects`, `reset` (what came so far is withdrawn),
    `end` {status, note, provider}; then it closes.  Resumes after `Last-Event-ID`, or `?after=` of the page."""
    given = request.headers.get("Last-Event-ID") or request.GET.get("after") or str(Place())
    place = Place.parse(given)
    if place is None:
        return HttpResponse("Last-Event-ID must be five numbers.\n", status=400, content_type="text/plain")
    try:
        await sync_to_async(_find)(request, pk)
    except SignedOut:
        return HttpResponse("Sign in to follow this answer.\n", status=401, content_type="text/plain")
    return live.response(live.follow(_WATCHERS, pk, place, read, retry_ms=1000))


def _part(events: list[tuple[str, dict[str, Any]]], place: Place, over: bool) -> Part[Place]:
    return Part([f"id: {place}\nevent: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events], place, over)
