"""Few pages at once: whoever comes later waits for a turn instead of slowing down all that are being made.

A page is 20 to 60 ms of processor in one interpreter.  Shared out between all requests, each of twelve takes as long as
all of them; one after the other, the first is done in a twelfth of that.  Measured with 50 people on two processors:
p95 570 ms without turns, 300 to 420 ms with 1 to 3 (docs/load.md).  More than one, so that a request that waits for
the disk or takes seconds holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

#: Requests that one web process computes at once.
AT_ONCE = 3


@sync_and_async_middleware
def concurrency_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if not iscoroutinefunction(get_response):
        return get_response
    turns = asyncio.Semaphore(AT_ONCE)

    async def asynchronous(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase
        if _waits(request):
            response = await get_response(request)
        else:
            async with turns:
                response = await get_response(request)
        return response

    return asynchronous


def _waits(request: HttpRequest) -> bool:
    """Whether the view is asynchronous: it waits for others, such as XProf's server, and computes next to nothing."""
    try:
        return iscoroutinefunction(resolve(request.path_info).func)
    except Resolver404:
        return False
