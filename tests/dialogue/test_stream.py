"""An answer followed while it is written, through the real ASGI application."""

from __future__ import annotations

import asyncio
import json

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from agent.control import Cancel
from agent.events import Complaint, TextDelta
from agent.messages import UserMessage
from dialogue import stream
from dialogue.models import Message
from dialogue.services import answering, asking
from proposals.agents.conversation import ConstraintStated
from tests.backend.test_stream import connections_to_the_database, cookie, least_held, opened, run_async
from tests.dialogue.answerers import final, tool

pytestmark = pytest.mark.django_db(transaction=True)

in_database = sync_to_async


def address(answer) -> str:
    return f"/answers/{answer.pk}/stream/"


def messages(response):
    """(id, event, data) of each whole message."""
    found = []
    for block in response.text.split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            found.append((lines["id"], lines["event"], json.loads(lines["data"])))
    return found


def text_of(response):
    """The text as a browser puts it together."""
    text = ""
    for _, name, data in messages(response):
        if name == "reset":
            text = ""
        elif name == "text":
            assert data["at"] == len(text)
            text += data["text"]
    return text


def names(response):
    return [name for _, name, _ in messages(response)]


@pytest.fixture
def written(people, thread):
    """An answer that a writer has begun; the test says what it writes next."""
    answer = asking.ask(thread, people.engineer, "Which do you recommend first?")
    claimed = answering.claim(answer.pk, "somewhere/1")
    return answering.Writing(claimed, claimed.worker, Cancel())


def say(written, *said):
    for item in said:
        written.take(item)
    written.flush(now=True)


def end(written):
    answering.end(written.answer, written.worker, Message.Status.DONE, provider="built-in")


def test_text_steps_and_effects_come_as_they_are_made(people, written):
    session = cookie(people.viewer)

    async def watch():
        async with opened(address(written.answer), session) as response:
            await in_database(say)(written, *tool(1, "predict", {"ici": {"data": 16}}, {"step_time_s": 1.0}))
            await response.until(lambda r: "steps" in names(r))
            await in_database(say)(written, TextDelta(1, "The "), TextDelta(1, "ﬁrst "))
            await response.until(lambda r: text_of(r) == "The ﬁrst ")
            await in_database(say)(written, TextDelta(1, "is 🚀 best."))
            await response.until(lambda r: text_of(r) == "The ﬁrst is 🚀 best.")
            await in_database(say)(written, ConstraintStated({"keep_batch": True}, "Keep the batch."))
            await response.until(lambda r: "effects" in names(r))
            await in_database(end)(written)
            await response.until(lambda r: r.done.is_set())
        assert response.headers["content-type"] == "text/event-stream"
        return response

    response = run_async(watch())
    assert messages(response)[-1][1:] == ("end", {"status": "done", "note": "", "provider": "built-in"})
    steps = [data["steps"] for _, name, data in messages(response) if name == "steps"][-1]
    assert [(step["tool"], step["ok"]) for step in steps] == [("predict", True)]
    assert "reset" not in names(response)


def test_a_browser_that_comes_back_goes_on_in_the_middle_of_the_text(people, written):
    session = cookie(people.viewer)
    say(written, TextDelta(1, "Half an answer 🚀, "))

    async def first():
        async with opened(address(written.answer), session) as response:
            await response.until(lambda r: text_of(r))
        return response

    place = messages(run_async(first()))[-1][0]
    say(written, TextDelta(1, "and the rest."))
    end(written)

    async def again(headers=(), query=""):
        async with opened(address(written.answer), session, headers, query) as response:
            await response.until(lambda r: r.done.is_set())
        return [(name, data.get("text")) for _, name, data in messages(response)]

    assert run_async(again([(b"last-event-id", place.encode())])) == [("text", "and the rest."), ("end", None)]
    assert run_async(again(query=f"after={place}")) == [("text", "and the rest."), ("end", None)]
    assert run_async(again()) == [("text", "Half an answer 🚀, and the rest."), ("end", None)]


def test_text_that_is_withdrawn_is_taken_from_the_page(people, written):
    session = cookie(people.viewer)

    async def watch():
        async with opened(address(written.answer), session) as response:
            await in_database(say)(written, TextDelta(1, "It takes 7.5 s."))
            await response.until(lambda r: text_of(r) == "It takes 7.5 s.")
            wrong = Complaint(1, 1, "content", ("7.5 s is in no result",), UserMessage("7.5 s is in no result"))
            await in_database(say)(written, wrong, TextDelta(2, "It takes 1 s."))
            await response.until(lambda r: text_of(r) == "It takes 1 s.")
            # The final answer is another one than the model had begun.
            await in_database(say)(written, final("Proposal 1 takes 1 s."))
            await response.until(lambda r: text_of(r) == "Proposal 1 takes 1 s.")
        return names(response).count("reset")

    assert run_async(watch()) == 2


def test_a_worker_that_died_is_followed_by_the_next(people, written):
    session = cookie(people.viewer)
    wrong = Complaint(1, 1, "content", ("wrong",), UserMessage("wrong"))
    say(written, TextDelta(1, "Nonsense."), wrong, TextDelta(1, "Half"))

    async def watch():
        async with opened(address(written.answer), session) as response:
            await response.until(lambda r: text_of(r) == "Half")
            claimed = await in_database(answering.claim)(written.answer.pk, "somewhere/1")
            other = answering.Writing(claimed, claimed.worker, Cancel())
            await in_database(say)(other, TextDelta(1, "Whole."))
            await response.until(lambda r: text_of(r) == "Whole.")
            await in_database(end)(other)
            await response.until(lambda r: r.done.is_set())

    run_async(watch())


@pytest.mark.parametrize(
    ("name", "status"), [("viewer", 200), ("engineer", 200), ("outsider", 404), ("anonymous", 401)]
)
def test_who_may_follow(people, written, name, status):
    session = "" if name == "anonymous" else cookie(getattr(people, name))
    end(written)

    async def ask():
        async with opened(address(written.answer), session) as response:
            await response.until(lambda r: r.done.is_set())
        return response.status

    assert run_async(ask()) == status


def test_a_wrong_place_a_wrong_answer_and_a_wrong_method_are_refused(people, written):
    client = people.client("viewer")
    assert client.post(address(written.answer)).status_code == 405
    for place in ("12", "1.2.3.4.x", "-1.0.0.0.0", "9" * 40):
        assert client.get(address(written.answer), headers={"Last-Event-ID": place}).status_code == 400
    assert client.get("/answers/999999999/stream/").status_code == 404
    assert client.get(f"/answers/{written.answer.question_id}/stream/").status_code == 404  # a question, no answer


def test_100_open_streams_share_one_connection_and_all_read_the_answer(people, written):
    session = cookie(people.viewer)
    before = connections_to_the_database()

    async def watch():
        blocks = [opened(address(written.answer), session) for _ in range(100)]
        responses = []
        for start in range(0, 100, 20):  # browsers do not all connect in the same millisecond
            responses += await asyncio.gather(*(block.__aenter__() for block in blocks[start : start + 20]))
        await asyncio.gather(*(r.until(lambda r: r.status == 200) for r in responses))
        held = await least_held(before + 3)
        for number in range(10):
            await in_database(say)(written, TextDelta(1, f"{number} "))
        await in_database(end)(written)
        await asyncio.gather(*(r.until(lambda r: r.done.is_set(), 60) for r in responses))
        assert {text_of(r) for r in responses} == {"0 1 2 3 4 5 6 7 8 9 "}
        await asyncio.gather(*(block.__aexit__(None, None, None) for block in blocks))
        assert not stream._WATCHERS.here().waiting
        await in_database(connections.close_all)()
        return held

    assert run_async(watch()) <= before + 3
