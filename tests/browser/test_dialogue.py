"""Arguing with the proposals in a browser: streamed answers, steps, what is held, a mesh that becomes a proposal.

Who answers is the test, through the same services and the same events; the page only sees the database.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import SETTLED, overflow, violations

TEXT = (
    "**Proposal 1 first.** The step takes 1.5 s instead of 1.84 s.\n\n"
    "| Mesh | Step |\n| --- | --: |\n| `data 8 · model 4` | 1.5 s |\n| what runs | 1.84 s |\n"
)


def answering(answer_pk: int, answerer: Any) -> threading.Thread:
    """Write an answer beside the browser, as a worker does."""
    from django.db import connection

    from dialogue.services.respond import respond

    def work() -> None:
        try:
            respond(answer_pk, answerer)
        finally:
            connection.close()

    running = threading.Thread(target=work)
    running.start()
    return running


def newest() -> Any:
    from dialogue.models import Message

    found = Message.objects.filter(role="assistant").order_by("-pk").first()
    assert found is not None
    return found


@pytest.fixture
def experiment(as_engineer: Any) -> Any:
    from tests.browser.factories import make_ready

    made = make_ready(as_engineer, "To argue about")
    return getattr(made, "experiment", made)


@pytest.fixture
def panel(server: str, experiment: Any, page: Page) -> Any:
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    found = page.get_by_role("complementary", name="Challenge")
    expect(found).to_be_visible()
    return found


def ask(page: Page, text: str) -> Any:
    expect(page.get_by_role("button", name="Send")).to_be_visible()  # the answer before has ended here, too
    page.get_by_label("Ask or challenge").fill(text)
    page.get_by_label("Ask or challenge").press("Enter")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text(text)
    return newest()


def test_an_argument_from_the_question_to_a_new_proposal(server: str, experiment: Any, panel: Any, page: Page) -> None:
    from agent.events import TextDelta
    from proposals.agents.conversation import ConstraintStated, MeshOffered
    from tests.dialogue.answerers import Scripted, Waiting, final, tool

    assert violations(page) == []
    panel.get_by_role("button", name="How sure are you?").click()
    log = panel.get_by_role("log")
    expect(log).to_contain_text("How sure are you?")
    streamed = Waiting("Rather sure, ", "as far as a model can be.")
    writing = answering(newest().pk, streamed)
    expect(log).to_contain_text("Rather sure,")
    expect(log).not_to_contain_text("as far as")
    expect(panel.get_by_role("button", name="Stop the answer")).to_be_visible()
    assert violations(page) == []
    streamed.go.set()
    writing.join(20)
    expect(log).to_contain_text("Rather sure, as far as a model can be.")
    expect(panel.get_by_role("button", name="Send")).to_be_visible()

    offer = MeshOffered({"ici": {"replica": 1, "data": 16, "seq": 1, "model": 4}, "dcn": {"data": 1}}, {}, "Another")
    arguments = {"ici": {"data": 8, "model": 4}}
    answering(
        ask(page, "Keep the batch. Which first?").pk,
        Scripted(
            tool(1, "predict", arguments, {"step_time_s": 1.5, "current": {"step_time_s": 1.84}}),
            ConstraintStated({"keep_batch": True}, "Keep the global batch."), offer, TextDelta(1, TEXT[:20]),
            final(TEXT),
        ),
    ).join(30)  # fmt: skip
    expect(log.get_by_role("cell", name="1.84 s")).to_be_visible()
    expect(log.locator("strong")).to_have_text("Proposal 1 first.")
    step = log.locator("details.tool").last
    expect(step).to_contain_text("data 8 · model 4")
    step.locator("summary").click()
    expect(step.get_by_label("Result of step 1")).to_contain_text('"step_time_s": 1.5')
    expect(step.get_by_role("link", name="In the Sharding Memory")).to_be_visible()
    step.locator("summary").click()
    log.get_by_role("link", name="source: step 1").first.click()  # a number after a sentence opens its evidence
    expect(step.get_by_label("Result of step 1")).to_be_visible()
    assert violations(page) == []

    held = panel.get_by_role("list", name="Constraints and facts of this conversation")
    expect(held).to_contain_text("Keep the global batch")
    expect(panel.get_by_role("button", name="Propose again with these")).to_be_visible()
    page.get_by_label("Ask or challenge").fill("half a thought")
    held.get_by_role("button", name="Remove: Keep the global batch").click()
    expect(held).to_have_count(0)
    expect(page.get_by_label("Ask or challenge")).to_have_value("half a thought")

    panel.get_by_role("button", name="Add as a proposal").click()
    card = page.locator("#proposal-4")
    expect(card).to_contain_text("Added by pages-engineer")
    expect(page.locator("#dialogue").get_by_role("link", name="Proposal 4")).to_be_visible()


def test_an_answer_is_stopped_and_asked_for_again(panel: Any, page: Page) -> None:
    from tests.dialogue.answerers import Scripted, Waiting, final

    answer = ask(page, "Why not model 2?")
    writing = answering(answer.pk, Waiting("Because ", "never said"))
    expect(panel.get_by_role("log")).to_contain_text("Because")
    page.get_by_label("Ask or challenge").fill("Next question")
    page.get_by_label("Ask or challenge").press("Enter")  # waits for the answer before
    panel.get_by_role("button", name="Stop the answer").click()
    writing.join(20)
    expect(panel.get_by_role("log")).to_contain_text("Stopped.")
    expect(page.get_by_label("Ask or challenge")).to_have_value("Next question")
    panel.get_by_role("button", name="Retry").click()
    expect(panel.get_by_role("button", name="Stop the answer")).to_be_visible()
    again = newest()
    assert again.pk != answer.pk
    answering(again.pk, Scripted(final("Because of the memory."))).join(20)
    expect(panel.get_by_role("log")).to_contain_text("Because of the memory.")


def test_an_answer_goes_on_after_a_reload_and_withdrawn_text_goes(panel: Any, page: Page) -> None:
    from agent.control import Cancel
    from agent.events import Complaint, TextDelta
    from agent.messages import UserMessage
    from dialogue.services import answering as writer
    from tests.dialogue.answerers import final

    answer = ask(page, "And now?")
    claimed = writer.claim(answer.pk, "somewhere/1")
    assert claimed is not None
    writing = writer.Writing(claimed, claimed.worker, Cancel())

    def say(*said: Any) -> None:
        for item in said:
            writing.take(item)
        writing.flush(now=True)

    log = page.get_by_role("log", name="Conversation")
    say(TextDelta(1, "It takes 7.5 s. "))
    expect(log).to_contain_text("It takes 7.5 s.")
    page.reload()
    expect(log).to_contain_text("It takes 7.5 s.")
    say(TextDelta(1, "🚀 or so"))
    expect(log).to_contain_text("It takes 7.5 s. 🚀 or so")
    say(Complaint(1, 1, "content", ("7.5 s",), UserMessage("7.5 s is in no result")), TextDelta(2, "It takes 1 s."))
    expect(log).to_contain_text("It takes 1 s.")
    expect(log).not_to_contain_text("7.5 s.")
    say(final("It takes 1 s."))
    writer.end(claimed, claimed.worker, type(answer).Status.DONE, provider="built-in", text="It takes 1 s.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_two_people_read_the_same_thread(
    server: str, experiment: Any, panel: Any, page: Page, browser: Browser, as_engineer: Any
) -> None:
    from django.conf import settings
    from django.test import Client

    from tests.dialogue.answerers import Scripted, final

    client = Client()
    client.force_login(as_engineer.viewer)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    answering(ask(page, "Which first?").pk, Scripted(final("The first."))).join(20)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server}])
        other = context.new_page()
        other.goto(f"{server}/experiments/{experiment.pk}/dialogue/")
        log = other.get_by_role("log", name="Conversation")
        expect(log).to_contain_text("The first.")
        expect(other.get_by_text("Asking needs the engineer role")).to_be_visible()
        answer = ask(page, "Are you sure?")
        expect(log).to_contain_text("Are you sure?")
        answering(answer.pk, Scripted(final("Quite."))).join(20)
        expect(log).to_contain_text("Quite.")
    finally:
        context.close()


def test_threads_are_begun_chosen_renamed_and_deleted(panel: Any, page: Page) -> None:
    from tests.dialogue.answerers import Scripted, final

    answering(ask(page, "About the batch?").pk, Scripted(final("Keep it."))).join(20)
    expect(panel.get_by_role("log")).to_contain_text("Keep it.")
    panel.get_by_role("link", name="New conversation").click()
    expect(panel.get_by_role("log")).to_contain_text("Ask, challenge, or add a fact.")
    answering(ask(page, "About the memory?").pk, Scripted(final("It fits."))).join(20)
    expect(panel.get_by_role("log")).to_contain_text("It fits.")
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    panel.get_by_text("Threads").click()
    assert violations(page) == []
    panel.get_by_role("link", name="About the batch?").click()
    expect(panel.get_by_role("log")).to_contain_text("Keep it.")
    panel.get_by_text("Threads").click()
    panel.get_by_text("Rename").click()
    panel.get_by_label("Conversation name").fill("Batch 64")
    panel.get_by_role("button", name="Save").click()
    expect(panel.locator("details[data-menu] a", has_text="Batch 64")).to_have_count(1)  # the panel was exchanged
    panel.get_by_text("Threads").click()
    expect(panel.get_by_role("link", name="Batch 64")).to_be_visible()
    panel.get_by_text("Delete conversation").click()
    panel.get_by_role("button", name="Delete", exact=True).click()
    expect(panel.get_by_role("log")).to_contain_text("It fits.")


def test_an_answer_that_ends_after_its_thread_was_left_changes_nothing_in_the_other(panel: Any, page: Page) -> None:
    from tests.dialogue.answerers import Scripted, final

    late: list[Route] = []
    page.route("**/answers/*/", lambda route: late.append(route))
    answering(ask(page, "About the batch?").pk, Scripted(final("Keep it."))).join(20)
    expect(panel.get_by_role("log")).to_contain_text("Keep it.")
    while not late:
        page.wait_for_timeout(50)
    assert len(late) == 1  # the whole answer, with the form to ask in its thread
    panel.get_by_role("link", name="New conversation").click()
    expect(panel.get_by_role("log")).to_contain_text("Ask, challenge, or add a fact.")
    with page.expect_response("**/answers/*/"):
        late[0].continue_()
    page.wait_for_timeout(300)
    expect(panel.locator("#composer [name=thread]")).to_have_value("new")


def test_news_wait_until_a_thread_is_chosen_or_renamed(panel: Any, page: Page, as_engineer: Any) -> None:
    from dialogue.models import Message
    from tests.dialogue.answerers import Scripted, final

    answer = ask(page, "About the batch?")
    answering(answer.pk, Scripted(final("Keep it."))).join(20)
    expect(panel.get_by_role("log")).to_contain_text("Keep it.")
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    panel.get_by_text("Threads").click()
    panel.get_by_text("Rename").click()
    panel.get_by_label("Conversation name").fill("Batch 6")
    thread = answer.thread
    Message.objects.create(thread=thread, role="user", status="done", text="And a colleague asks this.")
    thread.save()  # it was changed now
    page.wait_for_timeout(4000)
    expect(panel.get_by_label("Conversation name")).to_have_value("Batch 6")
    page.keyboard.press("Escape")
    expect(panel.get_by_role("log")).to_contain_text("And a colleague asks this.")


def test_news_that_were_asked_for_before_the_panel_changed_shut_no_menu(panel: Any, page: Page) -> None:
    from dialogue.models import Message
    from tests.dialogue.answerers import Scripted, final

    answer = ask(page, "About the batch?")
    late: list[Route] = []
    page.route("**/dialogue/news/**", lambda route: late.append(route))
    answering(answer.pk, Scripted(final("Keep it."))).join(20)
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    while not late:
        page.wait_for_timeout(50)
    Message.objects.create(thread=answer.thread, role="user", status="done", text="And a colleague asks this.")
    answer.thread.save()  # it was changed now
    page.locator("#news").evaluate("old => old.replaceWith(old.cloneNode())")  # as the end of an answer does
    panel.get_by_text("Threads").click()
    panel.get_by_text("Rename").click()
    panel.get_by_label("Conversation name").fill("Batch 6")
    with page.expect_response("**/dialogue/news/**"):
        late[0].continue_()
    page.wait_for_timeout(300)
    expect(panel.get_by_label("Conversation name")).to_have_value("Batch 6")


def test_on_a_phone_it_is_a_page_of_its_own(server: str, experiment: Any, page: Page) -> None:
    from tests.dialogue.answerers import Scripted, final, tool

    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    expect(page.get_by_role("complementary", name="Challenge")).to_have_count(0)  # nothing is loaded that is not seen
    page.get_by_role("link", name="Challenge", exact=True).click()
    expect(page).to_have_url(re.compile(r"/dialogue/$"))
    page.get_by_role("button", name="Which do you recommend first?").click()
    expect(page).to_have_url(re.compile(r"/dialogue/\d+/$"))
    wide = "| " + " | ".join(f"Column {n}" for n in range(8)) + " |\n|" + " --- |" * 8 + "\n|" + " 1.5 s |" * 8
    steps = [item for n in range(6) for item in tool(n, "predict", {"ici": {"data": n}}, {"step_time_s": 1.5})]
    answering(newest().pk, Scripted(*steps, final(f"{'long_name_' * 20}\n\n{wide}"))).join(20)
    expect(page.get_by_role("cell", name="1.5 s").first).to_be_visible()
    expect(page.get_by_text("6 steps")).to_be_visible()
    assert overflow(page) == 0
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Retry")).to_be_in_viewport()  # the end of the answer is not covered
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    page.evaluate(SETTLED)
    assert violations(page, "dark") == []


def test_it_reads_and_asks_without_a_script(server: str, experiment: Any, as_engineer: Any, browser: Browser) -> None:
    from django.conf import settings
    from django.test import Client

    from tests.dialogue.answerers import Scripted, final

    client = Client()
    client.force_login(as_engineer.engineer)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = browser.new_context(java_script_enabled=False)
    try:
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server}])
        page = context.new_page()
        page.goto(f"{server}/experiments/{experiment.pk}/dialogue/?thread=new")
        page.get_by_label("Ask or challenge").fill("Which first?")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("log")).to_contain_text("Which first?")
        answering(newest().pk, Scripted(final("The first."))).join(20)
        expect(page.get_by_role("log")).to_contain_text("The first.")  # the page loads itself again
    finally:
        context.close()


def test_a_form_of_the_list_says_what_is_wrong_where_it_is_and_then_asks(panel: Any, page: Page) -> None:
    panel.get_by_text("Everything that can be computed").click()
    panel.get_by_label("Find a capability").fill("another batch")
    expect(panel.get_by_text("Longest ops of the step")).to_have_count(0)
    panel.get_by_text("Another batch size").click()
    batch = panel.get_by_label("Batch", exact=True)
    batch.evaluate("field => { field.type = 'text'; field.value = 'many'; }")
    panel.get_by_label("Mesh", exact=True).fill("data=8, seq=1")
    panel.get_by_role("button", name="Compute").click()
    expect(panel.get_by_text("Enter a whole number.")).to_be_visible()
    expect(batch).to_be_focused()
    expect(panel.get_by_label("Mesh", exact=True)).to_have_value("data=8, seq=1")
    assert violations(page) == [] and overflow(page) == 0
    batch.fill("128")
    panel.get_by_role("button", name="Compute").click()
    expect(panel.get_by_role("log")).to_contain_text("Another batch size: mesh = data=8, seq=1; batch = 128")


def test_nothing_of_a_wide_table_is_cut_off(server: str, experiment: Any, panel: Any, page: Page) -> None:
    """Beside the proposals and on a phone a table of many columns is shown as one block per row."""
    from tests.dialogue.answerers import Scripted, final

    heads = ("Configuration", "Step, predicted", "Per token, predicted", "80 % interval", "Confidence", "Legal")
    cells = ("`replica 1 · data 8 · seq 16` (proposal 1)", "6.2 s", "1.19×", "0.64–2.20×", "66 %", "yes")
    table = "\n".join(f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), cells))
    answering(ask(page, "Compare them").pk, Scripted(final(table))).join(20)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        if width == 390:
            page.goto(f"{server}/experiments/{experiment.pk}/dialogue/")
        expect(panel.get_by_role("cell", name="0.64–2.20×")).to_be_visible()
        cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert panel.locator(".said .tablewrap, header .badge").evaluate_all(cut) == 0
        assert violations(page) == []
