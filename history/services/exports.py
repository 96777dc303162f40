"""Records as a file, in pieces, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from accounts.models import Team
from history.record import Record
from history.services import formats
from history.services.filters import Filters
from history.services.search import found_by, narrowed
from history.services.store import to_record

BATCH = 500
PIECE_BYTES = 64 * 1024


def records(teams: Team | Iterable[int], filters: Filters) -> Iterator[Record]:
    """What the filters leave, newest first; with a query in words its matches, the best first."""
    if filters.q:
        yield from (to_record(row) for row in found_by(teams, filters))
        return
    rows = narrowed(teams, filters)
    last: int | None = None
    # By key and not by a cursor: each piece is a query of its own, and no connection waits for a slow reader.
    while batch := list((rows if last is None else rows.filter(pk__lt=last)).order_by("-pk")[:BATCH]):
        last = batch[-1].pk
        yield from (to_record(row) for row in batch)


def response(request: HttpRequest, teams: Team | Iterable[int], filters: Filters, kind: str) -> StreamingHttpResponse:
    """The download.  kind: one of `formats.FORMATS`."""
    pieces = _batched(formats.write(records(teams, filters), kind))
    content = _asynchronous(pieces) if isinstance(request, ASGIRequest) else pieces
    answer = StreamingHttpResponse(content, content_type=f"{formats.CONTENT_TYPES[kind]}; charset=utf-8")
    name = f"asap-history-{timezone.now():%Y-%m-%d}.{kind}"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def _batched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= PIECE_BYTES:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


async def _asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is made in the thread that may use the database."""
    following = sync_to_async(lambda: next(pieces, b""))
    while piece := await following():
        yield piece
