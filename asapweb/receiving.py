"""Who sends a request, before its body is taken."""

from __future__ import annotations

import io

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, connection
from django.http import HttpResponse
from rest_framework.exceptions import AuthenticationFailed

from accounts.confinement import AnyTokenAuthentication
from asapweb.body_limit import Message, Refused
from disk import space


async def is_known(scope: Message) -> bool:
    """Whether the request comes with a session or a token of somebody; raises Refused where that cannot be asked."""
    try:
        return await sync_to_async(_is_known)(scope)
    except DatabaseError as error:
        sentence = (
            space.sentence(error) if space.is_full(error) else "The database is unavailable; try again in a minute."
        )
        raise Refused(503, sentence, (b"retry-after", b"10")) from error


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
