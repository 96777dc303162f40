"""What PostgreSQL cannot store, in addresses and forms, once for all views: NUL, and the lone surrogates to which text
decodes in some charsets that a request may name.

NUL becomes U+FFFD, as in all text that we keep (`agent.messages.clean`): a filter then finds nothing.  All text is read
as UTF-8, which our pages and the API's clients send.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from django.utils.deprecation import MiddlewareMixin

from formatting.text import clean


class CleanTextMiddleware(MiddlewareMixin):
    """Runs after the CSRF middleware, so that no rejected form is parsed."""

    def process_request(self, request: HttpRequest) -> None:
        request.encoding = "utf-8"
        if "\0" in request.path_info:
            raise Http404
        query = request.META.get("QUERY_STRING", "")
        if "%00" in query or "\0" in query:
            request.META["QUERY_STRING"] = query.replace("%00", "%EF%BF%BD").replace("\0", "%EF%BF%BD")

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        # The API's views (exempt from CSRF here) read their own bodies, with limits of their own.
        if request.method != "POST" or getattr(view, "csrf_exempt", False):
            return
        if any("\0" in text for _, values in request.POST.lists() for text in values):
            form = request.POST.copy()
            for name, values in request.POST.lists():
                form.setlist(name, [clean(text) for text in values])
            request.POST = form  # type: ignore[assignment]
