"""The live stream, read from the real ASGI application as a browser reads it."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections
from django.test import Client

from asapweb.asgi import application
from experiments import live, stream
from experiments.models import RunStatus
from experiments.services import events, runs
from tests.backend.factories import make_experiment, make_people, make_ready

pytestmark = pytest.mark.django_db(transaction=True)

in_database = sync_to_async


def cookie(user) -> str:
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


class Response:
    """What came back so far: status, headers, and the messages of the stream."""

    def __init__(self):
        self.status = None
        self.headers = {}
        self.text = ""
        self.done = asyncio.Event()
        self.news = asyncio.Event()

    @property
    def messages(self):
        """(id, event, data) of each whole message that is not a comment."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in lines:
                found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
        return found

    async def until(self, condition, timeout=15.0):
        async with asyncio.timeout(timeout):
            while not condition(self):
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def opened(path, cookies="", headers=(), query=""):
    """A request to the application; leaving the block is the browser going away."""
    response = Response()
    gone = asyncio.Event()
    sent = False

    async def receive():
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
        else:
            response.text += message.get("body", b"").decode()
            if not message.get("more_body"):
                response.done.set()
        response.news.set()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"cookie", cookies.encode()), *headers],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
    }
    task = asyncio.create_task(application(scope, receive, send))
    try:
        yield response
    finally:
        gone.set()
        await asyncio.wait([task], timeout=10)
        assert task.done()


def address(experiment) -> str:
    return f"/experiments/{experiment.pk}/events/"


def run_async(coroutine):
    async def body():
        try:
            return await coroutine
        finally:
            await in_database(lambda: connections.close_all())()

    return asyncio.run(body())


def test_events_arrive_as_they_happen_and_the_stream_ends_with_the_run():
    people = make_people()
    experiment = make_experiment(people)
    run = runs.newest(experiment)
    session = cookie(people.viewer)

    async def watch():
        async with opened(address(experiment), session) as response:
            await response.until(lambda r: len(r.messages) == 3)
            assert response.headers["content-type"] == "text/event-stream"
            assert [kind for _, kind, _ in response.messages] == ["upload", "config", "status"]
            await in_database(events.progress)(run, "Reading 1 file", fraction=0.5)
            await response.until(lambda r: len(r.messages) == 4)
            assert response.messages[-1][2]["data"]["fraction"] == 0.5
            await in_database(runs.fail)(run, "The file is cut off; upload it again.")
            await response.until(lambda r: r.done.is_set())
        return response.messages

    found = run_async(watch())
    assert found[-1][1] == "end"
    assert found[-2][2]["data"]["to"] == "failed"
    stored = [e.pk for e in events.after(experiment)]
    assert [pk for pk, _, _ in found[:-1]] == stored


def test_a_browser_that_comes_back_gets_what_it_missed_and_nothing_twice():
    people = make_people()
    experiment = make_experiment(people)
    session = cookie(people.viewer)
    first, second, third = (e.pk for e in events.after(experiment))

    async def watch(headers=(), query=""):
        async with opened(address(experiment), session, headers, query) as response:
            await response.until(lambda r: len(r.messages) >= 1)
            await asyncio.sleep(0.3)
        return [pk for pk, _, _ in response.messages]

    assert run_async(watch()) == [first, second, third]
    assert run_async(watch([(b"last-event-id", str(first).encode())])) == [second, third]
    assert run_async(watch(query=f"after={second}")) == [third]
    assert run_async(watch([(b"last-event-id", str(second).encode())], f"after={first}")) == [third]


def test_after_the_end_the_browser_is_told_to_stop_asking():
    people = make_people()
    ready = make_ready(people)
    session = cookie(people.viewer)
    last = events.after(ready.experiment).last().pk

    async def ask(last_id):
        async with opened(address(ready.experiment), session, [(b"last-event-id", str(last_id).encode())]) as response:
            await response.until(lambda r: r.done.is_set())
        return response

    assert run_async(ask(last)).status == 204
    ended = run_async(ask(last - 1))
    assert [kind for _, kind, _ in ended.messages] == ["status", "end"]


def test_a_program_follows_with_its_token():
    people = make_people()
    experiment = make_experiment(people)
    runs.fail(runs.newest(experiment), "over")
    token = people.api("viewer").post("/api/tokens/").json()["token"]

    async def ask(given):
        async with opened(address(experiment), headers=[(b"authorization", f"Token {given}".encode())]) as response:
            await response.until(lambda r: r.done.is_set())
        return response.status

    assert run_async(ask(token)) == 200
    assert run_async(ask("nonsense")) == 401


def test_a_wrong_method_and_a_wrong_id_are_refused():
    people = make_people()
    experiment = make_experiment(people)
    client = people.client("viewer")
    assert client.post(address(experiment)).status_code == 405
    assert client.get(address(experiment), headers={"Last-Event-ID": "first"}).status_code == 400
    assert client.get("/experiments/999999999/events/").status_code == 404


def streams_of(experiment):
    watcher = stream._WATCHERS.here()
    return len(watcher.waiting.get(experiment.pk, ()))


def connections_to_the_database() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


async def least_held(expected: int) -> int:
    """Connections to the database once those that requests just closed are gone; waits ten seconds for `expected`."""
    for _ in range(100):
        if (held := await in_database(connections_to_the_database)()) <= expected:
            break
        await asyncio.sleep(0.1)
    return held


def test_120_streams_share_one_connection_and_leave_nothing_when_they_close():
    people = make_people()
    experiment = make_experiment(people)
    run = runs.newest(experiment)
    session = cookie(people.viewer)
    before = connections_to_the_database()

    async def watch():
        blocks = [opened(address(experiment), session) for _ in range(120)]
        responses = []
        for start in range(0, 120, 20):  # browsers do not all connect in the same millisecond
            responses += await asyncio.gather(*(block.__aenter__() for block in blocks[start : start + 20]))
            await asyncio.gather(*(r.until(lambda r: len(r.messages) == 3) for r in responses[start:]))
        assert streams_of(experiment) == 120
        held = await least_held(before + 3)
        began = time.monotonic()
        await in_database(events.progress)(run, "Reading 1 file")
        await asyncio.gather(*(r.until(lambda r: len(r.messages) == 4) for r in responses))
        took = time.monotonic() - began
        await asyncio.gather(*(block.__aexit__(None, None, None) for block in blocks))
        async with asyncio.timeout(10):
            while streams_of(experiment):
                await asyncio.sleep(0.05)
        return held, took

    held, took = run_async(watch())
    assert held <= before + 3, "a stream must not hold a connection of its own"
    assert took < 15
    for _ in range(50):
        if connections_to_the_database() <= before:
            break
        time.sleep(0.1)
    assert connections_to_the_database() <= before


def test_a_quiet_stream_is_kept_alive(monkeypatch):
    monkeypatch.setattr(live, "KEEP_ALIVE_EVERY_S", 0.1)
    people = make_people()
    experiment = make_experiment(people)
    runs.move(runs.newest(experiment), RunStatus.UPLOADED, RunStatus.CONFIGURING, actor="coordinator")
    session = cookie(people.viewer)

    async def watch():
        async with opened(address(experiment), session) as response:
            await response.until(lambda r: r.text.count(": keep-alive") >= 3)
            assert not response.done.is_set()

    run_async(watch())


def test_hostile_text_stays_inside_its_message():
    people = make_people()
    experiment = make_experiment(people)
    text = "a\n\nevent: end\ndata: {}\n\n<script>\u2028"
    events.append(experiment, "progress", "worker", data={"text": text})
    runs.fail(runs.newest(experiment), "over")
    session = cookie(people.viewer)

    async def ask():
        async with opened(address(experiment), session) as response:
            await response.until(lambda r: r.done.is_set())
        return response.messages

    found = run_async(ask())
    assert [kind for _, kind, _ in found] == ["upload", "config", "status", "progress", "status", "end"]
    assert found[3][2]["data"]["text"] == text
