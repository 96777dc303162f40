"""Errors outside of any view, in the form that was asked for: a sentence of JSON for programs, else a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults

Handler = Callable[..., HttpResponse]


def wants_json(path: str, accepted: str) -> bool:
    return path.startswith("/api/") or ("application/json" in accepted and "text/html" not in accepted)


def _answering(page: Handler, sentence: str) -> Handler:
    @wraps(page)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = page(request, *args, **kwargs)
        if not wants_json(request.path_info, request.headers.get("Accept", "")):
            return response
        return JsonResponse({"detail": sentence}, status=response.status_code)

    return answer


bad_request = _answering(defaults.bad_request, "The request cannot be read.")
permission_denied = _answering(defaults.permission_denied, "You may not do this.")
page_not_found = _answering(defaults.page_not_found, "There is nothing at this address.")
server_error = _answering(defaults.server_error, "Something went wrong in our code; it has been logged.")
