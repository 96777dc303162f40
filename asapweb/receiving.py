"""The sender of a request, looked up before its body is taken; and where the body is kept."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import DatabaseError, connection
from django.http import HttpResponse
from rest_framework.exceptions import AuthenticationFailed

from accounts.confinement import AnyTokenAuthentication
from asapweb.body_limit import BodyRefusedError, Message
from disk import space


class Handler(ASGIHandler):
    """Django's handler with bodies on the disk of the uploads, not in the system's temporary folder."""

    async def read_body(self, receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> Any:
        # Django closes it after the request.
        body = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE, mode="w+b", dir=settings.FILE_UPLOAD_TEMP_DIR
        )
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                if not message.get("more_body", False):
                    break
        except BaseException:
            body.close()
            raise
        body.seek(0)
        return body


async def is_known(scope: Message) -> bool:
    """Return True if the request has a session or a token of somebody.

    Raises BodyRefusedError where the database cannot be asked.
    """
    try:
        return await sync_to_async(_is_known)(scope)
    except DatabaseError as error:
        sentence = (
            space.sentence(error) if space.is_full(error) else "The database is unavailable; try again in a minute."
        )
        raise BodyRefusedError(503, sentence, (b"retry-after", b"10")) from error


def _is_known(scope: Message) -> bool:
    request = ASGIRequest(scope, io.BytesIO())
    try:
        SessionMiddleware(lambda _: HttpResponse()).process_request(request)
        if get_user(request).is_authenticated:
            return True
        return AnyTokenAuthentication().authenticate(request) is not None
    except AuthenticationFailed:
        return False
    finally:
        connection.close()
