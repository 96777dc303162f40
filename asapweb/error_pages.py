"""Errors outside of any view, in the form that was asked for: a sentence of JSON for programs, else a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults

from disk import space
from formatting import limit

Handler = Callable[..., HttpResponse]


def wants_json(path: str, accepted: str) -> bool:
    return path.startswith("/api/") or ("application/json" in accepted and "text/html" not in accepted)


def refuse(request: HttpRequest, status: int, title: str, sentence: str) -> HttpResponse:
    """A sentence that says what to do, as a page or as JSON."""
    if wants_json(request.path_info, request.headers.get("Accept", "")):
        # The upload page's script reads `error`.
        return JsonResponse({"detail": sentence, "error": sentence}, status=status)
    # Without the request: what is wrong may be its own body, session or the database.
    return HttpResponse(render_to_string("refused.html", {"title": title, "sentence": sentence}), status=status)


def _answering(page: Handler, sentence: str) -> Handler:
    @wraps(page)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = page(request, *args, **kwargs)
        if not wants_json(request.path_info, request.headers.get("Accept", "")):
            return response
        return JsonResponse({"detail": sentence}, status=response.status_code)

    return answer


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """What Django could not read, or does not take: 413 for a form that is too large, else 400."""
    if isinstance(exception, RequestDataTooBig):
        most = limit(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, "bytes")
        sentence = f"The request is larger than {most}, the limit for anything but uploads."
        return refuse(request, 413, "Too large", sentence)
    if isinstance(exception, TooManyFilesSent | TooManyFieldsSent):
        files, fields = settings.DATA_UPLOAD_MAX_NUMBER_FILES, settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        sentence = (
            f"The form has more than {files} files or {fields:,} fields: send fewer, or put the files into one zip."
        )
        return refuse(request, 400, "Too many", sentence)
    return refuse(request, 400, "Not readable", "The request is malformed; go back and try again.")


permission_denied = _answering(defaults.permission_denied, "You do not have permission to do this.")
page_not_found = _answering(defaults.page_not_found, "Page not found.")
_server_error = _answering(defaults.server_error, "Internal error; it has been logged.")


def server_error(request: HttpRequest) -> HttpResponse:
    """500, or 503 where no connection to the database was to be had: it is away, or all are in use."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError | InterfaceError) and not space.is_full(error):
        response = refuse(
            request,
            503,
            "Busy",
            "The server is overloaded or its database does not answer: try again in a few seconds.",
        )
        response["Retry-After"] = "10"
        return response
    return _server_error(request)
