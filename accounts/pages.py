"""What the pages of every app share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.permissions import MemberRequest
from accounts.refusals import Refused


@contextmanager
def refusals_as_messages(request: HttpRequest) -> Iterator[None]:
    """A refusal ends the block, and its sentence is shown on the next page."""
    try:
        yield
    except Refused as error:
        messages.error(request, str(error))


def page_or_part(
    request: MemberRequest, page: str, part: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    """The template `page` for a browser, only its `part` for htmx."""
    return render(request, part if request.htmx else page, context, status=status)
