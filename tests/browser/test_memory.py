"""The Sharding Memory and replays in a browser: read, narrowed, searched, unfolded, cited and paged, on any screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_readable, violations


@pytest.fixture(scope="module")
def long(people: Any) -> Iterator[Any]:
    """An experiment whose conversation left an answer by a model and 230 further events."""
    from dialogue.models import Message, Thread
    from experiments.services import events
    from proposals.services import recording
    from tests.browser.factories import make_ready

    experiment = make_ready(people, "Long history")
    thread = Thread.objects.create(team=experiment.team, experiment=experiment, created_by=people.engineer)
    question = Message.objects.create(thread=thread, role="user", author=people.engineer, text="How long is the step?")
    answer = Message.objects.create(
        thread=thread, role="assistant", question=question, status="done", text="See above."
    )
    asked = {"thread": thread.pk, "message": question.pk, "text": question.text}
    events.append(experiment, "message", "user", user=people.engineer, data=asked)
    for event in _answered():
        recording.store(experiment, event, "coordinator", thread=thread.pk, message=answer.pk)
    for number in range(230):
        events.append(experiment, "progress", "worker", data={"text": f"later step {number}"})
    yield type("Long", (), {"pk": experiment.pk, "thread": thread.pk, "answer": answer.pk, "experiment": experiment})
    experiment.delete()


def _answered() -> list[Any]:
    """The steps of a scripted model: a tool call, an answer that is refused, one that stands."""
    from agent.provider.openai import OpenAIProvider
    from agent.provider.settings import Settings
    from evaluation.quality.evidence import bench
    from experiments.event_text import PAYLOAD_KINDS
    from proposals.agents import chat
    from proposals.agents.conversation import Ask
    from tests.agent.server import ScriptedServer, text

    replies = [text("The step takes 123.45 s."), text("The tool results say it; I claim no number here.")]
    with ScriptedServer(replies) as server:
        env = {"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}
        asked = chat.answer(bench(), Ask("How long?"), None, OpenAIProvider(Settings.from_env(env)))
        return [event for event in asked if getattr(event, "kind", "") in PAYLOAD_KINDS]


PATHS = (
    "/experiments/{pk}/memory/", "/experiments/{pk}/memory/?thread={thread}", "/experiments/{pk}/memory/?q=nowhere",
    "/experiments/{pk}/replay/{answer}/?step=7",
    "/experiments/{pk}/replay/{answer}/?step=all",
    "/settings/model/",
)  # fmt: skip


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize("path", PATHS)
def test_page_is_accessible_and_fits(path: str, server: str, long: Any, as_engineer: Any, page: Page) -> None:
    address = server + path.format(pk=long.pk, thread=long.thread, answer=long.answer)
    check_readable(page, address)


def test_filters_and_search_keep_each_other_and_the_address(
    server: str, long: Any, as_engineer: Any, page: Page
) -> None:
    page.goto(f"{server}/experiments/{long.pk}/memory/")
    page.get_by_label("Conversation").select_option(str(long.thread))
    page.wait_for_url(f"**thread={long.thread}**")
    expect(page.locator(".tl")).to_have_count(9)
    page.get_by_role("navigation", name="Kind of event").get_by_role("link", name="Model").click()
    page.wait_for_url("**kind=model**")
    expect(page.locator(".tl")).to_have_count(6)
    page.get_by_label("Search events").fill("123.45")
    page.wait_for_url("**q=123.45**")
    expect(page.get_by_role("heading", name="Answer rejected for its content")).to_be_visible()
    assert f"thread={long.thread}" in page.url and "kind=model" in page.url
    export = page.get_by_role("link", name="JSON Lines").get_attribute("href") or ""
    assert all(part in export for part in (f"thread={long.thread}", "kind=model", "q=123.45"))
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("#timeline footer")).to_contain_text("1–100 of")


@pytest.mark.nightly
def test_an_event_unfolds_its_data_once_it_is_asked_for(server: str, long: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{long.pk}/memory/?thread={long.thread}")
    row = page.locator(".tl", has_text="Asked scripted").first
    assert "You are the Coordinator" not in page.content()
    row.locator("summary").click()
    expect(row.locator("pre")).to_contain_text("You are the Coordinator")
    assert violations(page) == []


def test_an_address_of_an_event_opens_at_its_place(server: str, long: Any, as_engineer: Any, page: Page) -> None:
    wanted = long.experiment.events.get(kind="progress", data__text="later step 150").pk
    page.goto(f"{server}/experiments/{long.pk}/memory/{wanted}/")
    assert page.url.endswith(f"?at={wanted}#event-{wanted}")
    row = page.locator(f"#event-{wanted}")
    expect(row).to_be_in_viewport()
    expect(row).to_have_attribute("aria-current", "true")


@pytest.mark.nightly
def test_a_replay_goes_step_by_step(server: str, long: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{long.pk}/memory/")
    page.get_by_role("link", name="Step by step").first.click()
    expect(page.get_by_role("heading", name="Step 1 of 8")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", name="Step 2 of 8")).to_be_visible()
    page.get_by_role("navigation", name="Steps").get_by_role("link", name=re.compile("Answer rejected")).click()
    expect(page.locator(".replay__body")).to_contain_text("is a number that you typed")
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.get_by_role("heading", name="All 8 steps")).to_be_visible()
