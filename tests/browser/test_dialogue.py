"""Asking in a browser: the palette, answers with their numbers, questions on objects, streamed answers, what is held.

No model is set up where the pages are served.  Who answers free text is the test, through the same services and the
same events; the page only sees the database.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import check_readable, overflow, violations


def answering(answer_pk: int, answerer: Any) -> threading.Thread:
    """Write an answer beside the browser, as a worker does."""
    from django.db import connection

    from dialogue.services.answering import respond

    def work() -> None:
        try:
            respond(answer_pk, answerer)
        finally:
            connection.close()

    running = threading.Thread(target=work)
    running.start()
    return running


def asked(experiment: Any, user: Any, text: str) -> Any:
    """A question to a model, as a program asks it; returns the answer, still to be written."""
    from dialogue.services import asking
    from tests.dialogue.answerers import model_set_up

    thread = asking.used(experiment).first() or asking.open_thread(experiment, user)
    with model_set_up():
        return asking.ask(thread, user, text)


@pytest.fixture
def experiment(as_engineer: Any) -> Any:
    from tests.backend.factories import make_ready

    return make_ready(as_engineer, "To ask about").experiment


@pytest.fixture
def panel(server: str, experiment: Any, page: Page) -> Any:
    return beside(server, experiment, page)


def beside(server: str, experiment: Any, page: Page) -> Any:
    """Open the panel beside the proposals, which a page of this width does not do by itself."""
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    page.get_by_role("link", name="Ask", exact=True).click()
    found = page.get_by_role("complementary", name="Ask")
    expect(found).to_be_visible()
    return found


def field(page: Page) -> Any:
    return page.locator("#ask-panel")


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize("path", [
    "compute/?q=remat", "compute/price/?mesh=data=8,model=2", "compute/which_first/", "compute/verdict/", "dialogue/",
])  # fmt: skip
def test_pages_are_accessible_and_fit(path: str, server: str, experiment: Any, page: Page) -> None:
    check_readable(page, f"{server}/experiments/{experiment.pk}/{path}")


def test_typed_settings_are_priced_and_answered(panel: Any, page: Page) -> None:
    field(page).fill("dp=8 tp=2")
    first = panel.locator("[data-row]").first
    expect(first).to_contain_text("Price this configuration")
    size = panel.get_by_role("group", name="Arguments of Price this configuration").get_by_label("model")
    expect(size).to_have_value("2")
    price = first.locator("i.p").inner_text()
    assert violations(page) == []
    field(page).press("Enter")
    log = panel.get_by_role("log")
    expect(log).to_contain_text("Computed in")
    expect(log.locator(".nb.p").first).to_have_text(price)
    expect(field(page)).to_have_value("")
    assert violations(page) == []
    log.locator(".nb.p").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("predicted")
    page.keyboard.press("Escape")
    expect(page.get_by_role("tooltip")).to_have_count(0)
    log.locator(".nb[data-target^=proposal]").first.click()
    card = page.get_by_role("dialog", name="About Proposal")
    expect(card.get_by_role("link", name="Look it up")).to_be_visible()
    expect(card.get_by_role("link", name="How sure, and what would lower it?")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    log.get_by_role("link", name="Does it fit in memory?").click()
    expect(log).to_contain_text("Does it fit in memory? data 8")
    assert overflow(page) == 0


def test_arguments_are_edited_in_the_row_of_a_result(panel: Any, page: Page) -> None:
    field(page).fill("dp=8 tp=2")
    form = panel.get_by_role("group", name="Arguments of Price this configuration")
    expect(form).to_be_visible()
    field(page).press("ArrowDown")
    page.keyboard.press("Tab")  # into the arguments of the row that is reached
    page.keyboard.press("Tab")
    form.get_by_label("data").fill("16")
    form.get_by_label("model").fill("1")
    row = panel.locator("a[data-row]", has_text="Price this configuration")
    expect(row).to_have_attribute("href", re.compile("data=16,model=1|model=1,data=16"))
    expect(form.get_by_label("model")).to_be_focused()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("log")).to_contain_text("data 16")


def test_results_and_numbers_are_one_tab_stop_and_walked_by_arrows(panel: Any, page: Page) -> None:
    field(page).fill("why")
    rows = panel.locator("[data-row]")
    expect(rows.first).to_be_visible()
    assert panel.locator("[data-row]").evaluate_all("rows => rows.filter(row => row.tabIndex === 0).length") == 1
    field(page).press("ArrowDown")
    expect(rows.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(field(page)).to_be_focused()
    page.keyboard.press("Escape")
    panel.get_by_role("link", name="Which first?").click()
    expect(panel.get_by_role("log").locator(".nb").first).to_be_visible()
    stops = (
        panel.locator(".msg--agent [data-rove]")
        .first.locator(".nb")
        .evaluate_all("numbers => numbers.filter(number => number.tabIndex === 0).length")
    )
    assert stops == 1


@pytest.mark.nightly
def test_the_palette_of_the_page_computes_too(server: str, experiment: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{experiment.pk}/")
    page.keyboard.press("Control+k")
    page.keyboard.type("dp=8 tp=2")
    expect(page.locator("#palette-list [data-row]").first).to_contain_text("Price this configuration")
    assert violations(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/dialogue/\d+/#m-\d+$"))
    expect(page.get_by_role("log")).to_contain_text("Computed in")


def test_a_streamed_answer_is_stopped_and_asked_again(
    server: str, experiment: Any, as_engineer: Any, page: Page
) -> None:
    from tests.dialogue.answerers import Scripted, Waiting, said

    answer = asked(experiment, as_engineer.engineer, "Why not model 2?")
    page.goto(f"{server}/experiments/{experiment.pk}/dialogue/")
    log = page.get_by_role("log", name="Conversation")
    streamed = Waiting("Because ", "never said")
    writing = answering(answer.pk, streamed)
    expect(log).to_contain_text("Because")
    page.reload()
    expect(log).to_contain_text("Because")
    assert violations(page) == []
    page.get_by_role("button", name="Stop the answer").click()
    writing.join(20)
    expect(log).to_contain_text("Stopped.")
    again = asked(experiment, as_engineer.engineer, "And now?")
    expect(log).to_contain_text("And now?")  # news
    answering(again.pk, Scripted(said("Because of **memory**."))).join(20)
    expect(log.locator("strong")).to_have_text("memory")


def test_a_card_is_confirmed_and_taken_back_and_a_mesh_added(
    server: str, experiment: Any, as_engineer: Any, page: Page
) -> None:
    from proposals.agents.conversation import ConstraintStated, MeshOffered
    from tests.dialogue.answerers import Scripted, said, tool

    offer = MeshOffered({"ici": {"replica": 1, "data": 4, "seq": 2, "model": 2}, "dcn": {"data": 1}}, {}, "Another")
    answer = asked(experiment, as_engineer.engineer, "We cannot change the batch.")
    told = ConstraintStated({"keep_batch": True}, "Keep the global batch.")
    answering(answer.pk, Scripted(tool(1, "look", {}, {"a": 1.5}), told, offer, said("Then proposal 1."))).join(30)
    panel = beside(server, experiment, page)
    card = panel.get_by_role("region", name="To confirm")
    expect(card).to_contain_text("Keep the global batch.")
    expect(panel.get_by_role("list", name="Constraints and facts of this conversation")).to_have_count(0)
    assert violations(page) == []
    card.get_by_role("button", name="Hold", exact=True).click()
    held = panel.get_by_role("list", name="Constraints and facts of this conversation")
    expect(held).to_contain_text("Keep the global batch")
    expect(panel.get_by_role("button", name="Propose again with these")).to_be_visible()
    held.get_by_role("button", name=re.compile("Remove")).click()
    expect(held).to_have_count(0)
    panel.get_by_role("button", name="Add as a proposal").click()
    expect(page.locator("#proposal-4")).to_contain_text("added by pages-engineer")


@pytest.mark.nightly
def test_threads_are_begun_and_deleted(panel: Any, page: Page) -> None:
    log = panel.get_by_role("log")
    log.get_by_role("link", name="Which first?").click()
    expect(log).to_contain_text("Computed in")
    panel.get_by_role("link", name="New conversation").click()
    expect(log).to_contain_text("About the proposals")  # else the next press is on the answer before
    expect(log).not_to_contain_text("Computed in")
    log.get_by_role("link", name="How confident are you?").click()
    expect(log).to_contain_text("Computed in")
    panel.get_by_text("Threads").click()
    assert violations(page) == []
    panel.get_by_text("Delete conversation").click()
    panel.get_by_role("button", name="Delete", exact=True).click()
    expect(panel.locator(".msg--me")).to_have_text("Which first?")


def test_it_answers_without_a_script(server: str, experiment: Any, as_engineer: Any, browser: Browser) -> None:
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(as_engineer.engineer)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = browser.new_context(java_script_enabled=False)
    try:
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server}])
        page = context.new_page()
        page.goto(f"{server}/experiments/{experiment.pk}/dialogue/?thread=new")
        field(page).fill("dp=8 tp=2")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("link", name=re.compile("Price this configuration")).click()
        expect(page.locator("main")).to_contain_text("per token over this run")
        page.get_by_role("button", name="Keep in the conversation").click()
        expect(page.get_by_role("log")).to_contain_text("per token over this run")
    finally:
        context.close()


@pytest.mark.nightly
def test_nothing_of_a_wide_table_is_cut_off(server: str, experiment: Any, panel: Any, page: Page) -> None:
    """Beside the proposals and on a phone a table of many columns is shown as one block per row."""
    panel.get_by_role("link", name="Which first?").click()
    expect(panel.get_by_role("log").get_by_role("cell").first).to_be_visible()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        if width == 390:
            page.goto(f"{server}/experiments/{experiment.pk}/dialogue/")
        expect(panel.get_by_role("cell").first).to_be_visible()
        cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert panel.locator(".said .tablewrap").evaluate_all(cut) == 0
        assert overflow(page) == 0 and violations(page) == []
