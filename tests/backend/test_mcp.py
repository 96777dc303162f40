"""`asap mcp` over real HTTP to the application: what another agent can read and compute, and with whose rights."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from knox.models import AuthToken
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from asapweb.mcp_server import READERS, make_server
from experiments.models import Event
from history.services import store
from proposals.agents.toolbox import FUNCTIONS
from proposals.models import Proposal
from tests.history.records import record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Asking = Callable[[Client], Awaitable[Any]]


def token_of(user: Any) -> str:
    return str(AuthToken.objects.create(user)[1])


def asked(server: Any, ask: Asking) -> Any:
    async def run() -> Any:
        async with Client(server) as client:
            return await ask(client)

    return asyncio.run(asyncio.wait_for(run(), 120))


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content)


def test_runs_and_every_tool_are_listed_and_nothing_decides(live_server, people, ready) -> None:
    server = make_server(live_server.url, token_of(people.viewer))
    listed = asked(server, lambda client: client.list_tools()).tools
    over_one = {function.__name__ for function in FUNCTIONS}
    assert {tool.name for tool in listed} == {tool.name for tool in READERS} | over_one
    for tool in listed:
        if tool.name in over_one:
            assert "experiment" in tool.input_schema["required"], tool.name

    async def everything(client: Client) -> list[Any]:
        return [await client.call_tool(tool.name, {"experiment": ready.experiment.pk}) for tool in called]

    called = listed

    before = (Event.objects.count(), list(Proposal.objects.values_list("status", flat=True)))
    results = asked(server, everything)
    assert (Event.objects.count(), list(Proposal.objects.values_list("status", flat=True))) == before
    by = {tool.name: result for tool, result in zip(called, results, strict=True)}
    assert json.loads(text_of(by["read_diagnosis"]))["bottleneck"]
    assert len(json.loads(text_of(by["read_proposals"]))["proposals"]) == 3
    assert ready.experiment.name in text_of(by["list_experiments"])


def test_a_price_is_that_of_the_page(live_server, people, ready) -> None:
    server = make_server(live_server.url, token_of(people.viewer))
    given = {"experiment": ready.experiment.pk, "configurations": [{"mesh": {"data": 8, "model": 2}}]}
    priced = asked(server, lambda client: client.call_tool("price", given))
    assert not priced.is_error and "data 8" in text_of(priced)
    sideways = {**given, "configurations": [{"mesh": {"sideways": 16}}]}
    wrong = asked(server, lambda client: client.call_tool("price", sideways))
    assert wrong.is_error and "sideways" in text_of(wrong)


def test_past_optimisations_are_those_that_the_team_may_see(live_server, people, ready) -> None:
    store.add(record("ours", title="Weights gathered one layer ahead"), people.team)
    query = {"experiment": ready.experiment.pk, "query": "weights gathered ahead"}
    for user, is_ours in ((people.viewer, True), (people.outsider, False)):
        server = make_server(live_server.url, token_of(user))
        result = asked(server, lambda client: client.call_tool("history", query))
        assert result.is_error is not is_ours
        assert ("Weights gathered one layer ahead" in text_of(result)) is is_ours


def test_rights_are_those_of_the_token(live_server, people, ready) -> None:
    for token, word in ((token_of(people.outsider), "belongs to another team"), ("ab" * 32, "oken")):
        server = make_server(live_server.url, token)
        result = asked(server, lambda client: client.call_tool("read_diagnosis", {"experiment": ready.experiment.pk}))
        assert result.is_error and word in text_of(result), text_of(result)
    server = make_server(live_server.url)
    assert "No token" in text_of(asked(server, lambda client: client.call_tool("list_experiments", {})))


def test_an_application_that_is_not_there_is_said(people) -> None:
    server = make_server("http://127.0.0.1:9", "x")
    result = asked(server, lambda client: client.call_tool("list_experiments", {}))
    assert result.is_error and "is the application running?" in text_of(result)


def command(*more: str) -> list[str]:
    return ["-c", "import sys; from asapweb.cli import main; sys.exit(main(sys.argv[1:]))", "mcp", *more]


def test_over_standard_input_and_output(live_server, people, ready) -> None:
    environment = {**os.environ, "ASAP_TOKEN": token_of(people.engineer)}
    server = StdioServerParameters(command=sys.executable, args=command("--url", live_server.url), env=environment)
    found = asked(server, lambda client: client.call_tool("list_experiments", {"search": ready.experiment.name[:4]}))
    assert ready.experiment.name in text_of(found)


@contextmanager
def listening(url: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, *command("--url", url, "--listen", f"127.0.0.1:{port}")])
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)


def test_over_http_each_request_brings_its_token(live_server, people, ready) -> None:
    with listening(live_server.url) as address:
        for user, is_error in ((people.viewer, False), (people.outsider, True)):
            ask = partial(proposals_of, ready.experiment.pk, address, token_of(user))
            assert asyncio.run(asyncio.wait_for(ask(), 120)).is_error is is_error


async def proposals_of(experiment: int, address: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        return await client.call_tool("read_proposals", {"experiment": experiment})


def test_a_token_is_needed_and_addresses_are_checked() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ASAP_TOKEN"}
    for more, word in (((), "ASAP_TOKEN"), (("--url", "ftp://x"), "http://"), (("--listen", "8100"), "HOST:PORT")):
        ended = subprocess.run(
            [sys.executable, *command(*more)], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert ended.returncode == 2 and word in ended.stderr
