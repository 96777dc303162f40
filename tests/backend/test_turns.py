"""A web process makes few pages at once, and a stream that waits for hours takes nobody's turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from asapweb.concurrency_limit import AT_ONCE, concurrency_middleware

pytestmark = pytest.mark.slow

PAGE, STREAM, UNKNOWN = "/experiments/", "/experiments/1/events/", "/there/is/none"


class Site:
    """Counts requests that are being answered, and keeps them until `open` is set."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, request: Any) -> HttpResponse:
        self.inside.append(request.path)
        await self.open.wait()
        return HttpResponse()


def both(*paths: str) -> list[str]:
    """The paths that are being answered at once when all of these are asked for."""

    async def ask() -> list[str]:
        site = Site()

        async def answer(request: Any) -> HttpResponse:
            return await site(request)

        served = concurrency_middleware(answer)
        tasks = [asyncio.create_task(served(RequestFactory().get(path))) for path in paths]
        await asyncio.sleep(0.05)
        inside = list(site.inside)
        site.open.set()
        responses = await asyncio.gather(*tasks)
        assert [response.status_code for response in responses] == [200] * len(paths)
        assert sorted(site.inside) == sorted(paths)
        return inside

    return asyncio.run(ask())


def test_pages_take_turns_and_all_are_answered():
    assert both(*[PAGE] * 10) == [PAGE] * AT_ONCE
    assert both(*[UNKNOWN] * 10) == [UNKNOWN] * AT_ONCE


def test_streams_neither_wait_nor_hold_anybody_up():
    found = both(*[STREAM] * 50, *[PAGE] * 10)
    assert found.count(STREAM) == 50 and found.count(PAGE) == AT_ONCE
    assert both(*[PAGE] * 10, STREAM).count(STREAM) == 1
