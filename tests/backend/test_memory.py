"""The Sharding Memory: what it lists, how it narrows and pages, what a reader gets of one event and takes away."""

from __future__ import annotations

import html
import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import TypeAdapter

from agent.events import (
    Complaint,
    Fault,
    Final,
    ModelRequest,
    ModelResponse,
    Retry,
    Stopped,
    ToolCalled,
    ToolReturned,
)
from agent.messages import AssistantMessage, SystemMessage, ToolCall, Usage, UserMessage
from experiments.models import Event
from experiments.services import events
from proposals.services import recording

LONG = "the all-gather of layer seven " * 400
FAULT = Fault("rate_limit", "The endpoint asks to wait.", 429, 3, 2.0)
STEPS = (
    ModelRequest(1, 1, "openai", "qwen3-32b", 0, (SystemMessage(LONG), UserMessage("Why?")), ("kpis", "ops")),
    Retry(1, 1, FAULT, 2.0),
    ModelRequest(1, 2, "openai", "qwen3-32b", 2, (), ("kpis", "ops")),
    ModelResponse(
        1, AssistantMessage("", (ToolCall("c1", "predict", '{"ici": {"data": 16}}'),)), "tool_calls",
        Usage(1200, 80), "qwen3-32b-2026", 0.0042, 1.5, None,
    ),
    ToolCalled(1, ToolCall("c1", "predict", '{"ici": {"data": 16}}'), "r1"),
    ToolReturned(
        1, "r1", "c1", "predict", True, {"ici": {"data": 16}}, {"step_time_s": 1.25, "note": LONG}, (), None, 0.3
    ),
    Complaint(1, 1, "content", ("No tool returned 40 %.",), UserMessage("Mend it.")),
    Stopped("rejected", "The checks rejected the answer twice.", None, "It cuts 40 %.", ("No tool returned 40 %.",)),
    Final("The step takes 1.25 s.", "fallback", Usage(1200, 80), 0.0042, 2, 1, 3.0),
)  # fmt: skip


def record(experiment, steps=STEPS, thread=7, message=70, actor="coordinator"):
    """The events of these steps of an answer, as the dialogue stores them."""
    return [recording.store(experiment, step, actor, thread=thread, message=message) for step in steps]


def text_of(response) -> str:
    assert response.status_code == 200
    return html.unescape(response.content.decode()).replace("\u00a0", " ")


def listed(text: str) -> list[int]:
    return [int(pk) for pk in re.findall(r'id="event-(\d+)"', text)]


@pytest.fixture
def address(ready):
    return f"/experiments/{ready.experiment.pk}/memory/"


def test_every_step_of_an_agent_survives_the_way_into_an_event_and_back(ready):
    stored = [Event.objects.get(pk=row.pk) for row in record(ready.experiment)]
    own = [{key: each for key, each in row.data.items() if key not in ("thread", "message", "said")} for row in stored]
    for row, data in zip(stored, own, strict=True):
        data |= {"message": row.data["said"]} if "said" in row.data else {}
    read = [TypeAdapter(type(step)).validate_python(data) for step, data in zip(STEPS, own, strict=True)]
    assert read == list(STEPS)


def test_each_kind_is_told_in_words_with_its_cost(people, ready, address):
    record(ready.experiment)
    text = text_of(people.client("viewer").get(address))
    for words in (
        "Asked qwen3-32b", "2 messages, 2 tools offered", "Request failed: too many requests", "Retried after 2.0 s",
        "qwen3-32b-2026 called 1 tool", "1,200 tokens in, 80 out", "$0.0042", "attempt 2",
        "Answer rejected for its content", "No tool returned 40 %.", "Stopped: the checks rejected the answer",
        "Final answer by the built-in rules", "“The step takes 1.25 s.”", "step_time_s, note",
    ):  # fmt: skip
        assert words in text, words
    assert "<code>predict</code> called" in text and "<code>predict</code> returned" in text


def test_payloads_are_not_read_for_the_list_but_on_demand(people, ready, address):
    rows = record(ready.experiment)
    client = people.client("viewer")
    assert text_of(client.get(address)).count("layer seven") <= 12  # the beginning of a text, never all of it
    data = text_of(client.get(f"{address}{rows[5].pk}/data/", headers={"HX-Request": "true"}))
    assert data.count("layer seven") == 400 and "<html" not in data
    whole = client.get(f"{address}{rows[5].pk}/data/")
    assert json.loads(whole.content)["data"]["result"]["step_time_s"] == 1.25


def test_the_filters_narrow_the_list_and_the_export_alike(people, ready, address):
    experiment = ready.experiment
    record(experiment)
    other = record(experiment, STEPS[4:6], thread=8, message=80, actor="proposer")
    client = people.client("engineer")
    for query, wanted in (
        ("?thread=8", {row.pk for row in other}),
        ("?agent=proposer&kind=tool", {row.pk for row in other}),
        ("?model=qwen3-32b", set(experiment.events.filter(kind="model_request").values_list("pk", flat=True))),
        (f"?run={ready.run.pk}&kind=result", set(experiment.events.filter(kind__in=("diagnosis", "proposal"))
         .values_list("pk", flat=True))),
    ):  # fmt: skip
        found = listed(text_of(client.get(address + query)))
        assert set(found) >= wanted and (query.startswith("?agent") is False or set(found) == wanted), query
        lines = b"".join(client.get(address.rstrip("/") + ".jsonl" + query).streaming_content).decode().splitlines()
        assert [json.loads(line)["id"] for line in lines] == found


def test_a_search_finds_words_anywhere_in_the_data_by_their_beginning(people, ready, address):
    rows = record(ready.experiment)
    client = people.client("viewer")

    def found(q):
        return set(listed(text_of(client.get(address, {"q": q}))))

    assert rows[5].pk in found("ALL-gather seven")  # in a payload that the list does not show
    assert rows[5].pk in found("step_ti")
    assert found("predict 16") >= {rows[3].pk, rows[4].pk, rows[5].pk}
    assert found("rejected twice") == {rows[7].pk}
    assert found("complaint") == {rows[6].pk, rows[7].pk}  # by its kind, and by a name in its data
    assert found("nowhere-to-be-found") == set()
    assert found("!!") == set()
    assert found("' | !predict & ()") == found("predict")  # the search's own language has no power here


def test_a_search_finds_scripts_without_spaces(people, ready, address):
    row = events.append(ready.experiment, "message", "user", data={"thread": 3, "text": "为什么这一步很慢"})
    assert listed(text_of(people.client("viewer").get(address, {"q": "这一步"}))) == [row.pk]


def test_pages_walk_through_a_long_history_both_ways_without_gap_or_overlap(people, ready, address):
    for number in range(250):
        events.append(ready.experiment, "progress", "worker", data={"text": f"step {number}"})
    everything = list(ready.experiment.events.order_by("pk").values_list("pk", flat=True))
    client, pages, there = people.client("viewer"), [], address
    while there:
        text = text_of(client.get(there))
        pages.append((there, listed(text)))
        later = re.search(r'href="([^"]*[?&]after=\d+[^"]*)"[^>]*>Later', text)
        there = later.group(1) if later else ""
    assert [pk for _, page in pages for pk in page] == everything and len(pages) == 3
    back = re.search(r'href="([^"]*before=\d+[^"]*)"[^>]*>Earlier', text_of(client.get(pages[2][0])))
    assert back and listed(text_of(client.get(back.group(1)))) == pages[1][1]
    newest = listed(text_of(client.get(address + "?end=1")))
    assert newest == everything[-100:]
    assert f"{len(everything) - 99}–{len(everything)} of" in text_of(client.get(address + "?end=1"))


def test_an_event_has_an_address_that_opens_its_page_at_its_place(people, ready, address):
    for number in range(230):
        events.append(ready.experiment, "progress", "worker", data={"text": f"step {number}"})
    wanted = ready.experiment.events.order_by("pk")[180].pk
    client = people.client("viewer")
    moved = client.get(f"{address}{wanted}/")
    assert moved.status_code == 302 and moved["Location"] == f"{address}?at={wanted}#event-{wanted}"
    text = text_of(client.get(moved["Location"].partition("#")[0]))
    assert wanted in listed(text) and listed(text).index(wanted) == 20
    assert re.search(rf'tl--named" id="event-{wanted}" aria-current="true"', text)


def test_the_number_of_queries_does_not_grow_with_the_events(people, ready, address):
    client = people.client("viewer")
    client.get(address)
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    for _ in range(6):
        record(ready.experiment)
    with CaptureQueriesContext(connection) as many:
        client.get(address)
    assert len(many) == len(few)


@pytest.mark.parametrize("query", [
    "?after=x", "?before=-1", "?at=99999999999999999999", "?thread=zz", "?kind=nothing", "?q=%00", "?model=%00a",
    "?agent=" + "x" * 500, "?run=1e9", "?end=1&after=3", "?q=" + "word+" * 300,
])  # fmt: skip
def test_a_strange_address_is_no_error(people, ready, address, query):
    assert people.client("viewer").get(address + query).status_code == 200


def test_an_event_of_another_experiment_is_not_here(people, ready, address):
    from tests.backend.factories import make_ready

    other = make_ready(people, "other").experiment.events.order_by("pk")[0].pk
    assert people.client("viewer").get(f"{address}{other}/").status_code == 404
    assert people.client("viewer").get(f"{address}{other}/data/").status_code == 404


def test_a_text_in_an_event_is_no_markup(people, ready, address):
    events.append(ready.experiment, "message", "user", data={"thread": 5, "text": "<script>alert(1)</script>"})
    call = {"name": "<img src=x>", "arguments": '{"a": "<b>"}'}
    row = events.append(ready.experiment, "tool_call", "coordinator", data={"call": call, "result_id": "r1"})
    raw = people.client("viewer").get(address).content.decode()
    assert "<script>alert" not in raw and "<img src=x>" not in raw and "&lt;script&gt;" in raw
    data = people.client("viewer").get(f"{address}{row.pk}/data/", headers={"HX-Request": "true"}).content.decode()
    assert "<img" not in data


def test_conversations_are_named_by_their_question_and_by_their_new_name(people, ready, address):
    experiment = ready.experiment
    events.append(experiment, "message", "user", data={"thread": 41, "text": "Which do you recommend first?"})
    events.append(experiment, "message", "user", data={"thread": 42, "text": "Why not model=1?"})
    events.append(experiment, "message", "user", data={"thread": 42, "renamed": "Memory"})
    text = text_of(people.client("viewer").get(address))
    assert "41: Which do you recommend first?" in text and "42: Memory" in text and "42: Why not" not in text


def test_an_event_is_never_saved_twice(ready):
    row = events.append(ready.experiment, "progress", "worker", data={"text": "x"})
    with pytest.raises(TypeError):
        row.save()
