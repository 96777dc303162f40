"""What the pages of every app share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.http import HttpRequest

from accounts.refusals import Refused


@contextmanager
def refusals_as_messages(request: HttpRequest) -> Iterator[None]:
    """A refusal ends the block, and its sentence is shown on the next page."""
    try:
        yield
    except Refused as error:
        messages.error(request, str(error))
