"""Streams: they give their database connection back, so they are asked for outside of any transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient
from django.test.utils import override_settings

from tests.dialogue.answerers import model_set_up
from tests.permissions.doors import Doors
from tests.permissions.objects import make_site
from tests.permissions.table import ROWS, STREAMS
from tests.permissions.test_every_route import who_tries

pytestmark = pytest.mark.django_db(transaction=True)


async def opened(address: str, cookies: Any, headers: dict[str, str]) -> tuple[int, str]:
    client = AsyncClient()
    client.cookies = cookies
    try:
        response = await client.get(address, headers=headers)
        if not response.streaming:
            return response.status_code, response.content.decode()
        async with asyncio.timeout(20):
            return response.status_code, "".join([each.decode() async for each in response])
    finally:
        await sync_to_async(connections.close_all)()  # that of the thread which asyncio.run ends with this loop


def test_members_follow_a_stream_and_nobody_else(tmp_path: Path) -> None:
    with model_set_up(), override_settings(ASAP_HOME=tmp_path):
        doors = Doors(make_site())
        found, expected = {}, {}
        for row in (row for row in ROWS if row.address in STREAMS):
            for caller in [*who_tries(doors, row), *doors.callers["viewer"]]:
                status, text = asyncio.run(opened(doors.address(row), caller.client.cookies.copy(), caller.headers))
                asked = f"{row.address} by {caller}"
                found[asked] = (status, [mark for mark in caller.marks if mark in text])
                expected[asked] = (401 if caller.name == "anonymous" else 200 if caller.role else 404, [])
        assert found == expected and len(found) > 20
