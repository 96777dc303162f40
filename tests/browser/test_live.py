"""Progress that tells the truth: live, after a reload, and when it fails."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import violations


def test_steps_follow_the_run_without_a_reload(server: str, as_engineer: Any, page: Page) -> None:
    from experiments.models import RunStatus
    from experiments.services import events
    from tests.browser.factories import advance, make_working

    experiment, run = make_working(as_engineer, "Live")
    page.goto(f"{server}/experiments/{experiment.pk}/")
    steps = page.locator("#steps")
    expect(steps.locator(".is-now")).to_contain_text("Converting host 1 of 1")
    expect(steps.get_by_role("img", name="38.0 % of this step")).to_be_visible()
    assert violations(page) == []
    events.progress(run, "Reading steps and ops", fraction=0.8)
    expect(steps.locator(".is-now")).to_contain_text("Reading steps and ops")
    page.reload()
    expect(steps.locator(".is-now")).to_contain_text("Reading steps and ops")
    advance(run, RunStatus.PROPOSING)
    # The diagnosis is shown as soon as it is there, while the proposals are still being made.
    expect(page.get_by_role("heading", name="Communication-bound")).to_be_visible()
    expect(steps.locator(".is-now")).to_contain_text("Proposing")
    expect(page.locator("#state")).to_have_text("Proposing")
    advance(run, RunStatus.READY)
    expect(page.get_by_role("link", name="See proposals")).to_be_visible()
    expect(steps).to_have_count(0)


def test_a_click_is_not_lost_when_the_run_ends_at_that_moment(server: str, as_engineer: Any, page: Page) -> None:
    from experiments.models import RunStatus
    from tests.browser.factories import advance, make_working

    experiment, run = make_working(as_engineer, "Clicked")
    advance(run, RunStatus.PROPOSING)
    page.goto(f"{server}/experiments/{experiment.pk}/")
    slow: list[Route] = []
    page.route("**/proposals/", lambda route: slow.append(route))
    page.get_by_role("link", name="Proposals").first.click(no_wait_after=True)
    with page.expect_response("**/progress/**"):
        advance(run, RunStatus.READY)
    page.wait_for_timeout(300)  # the page would have loaded itself again by now, in place of the link
    assert len(slow) == 1
    slow[0].continue_()
    page.wait_for_url("**/proposals/")


def test_an_open_panel_is_not_shut_by_the_run_that_ends(server: str, as_engineer: Any, page: Page) -> None:
    from experiments.models import RunStatus
    from tests.browser.factories import advance, make_working

    experiment, run = make_working(as_engineer, "Searched")
    advance(run, RunStatus.PROPOSING)
    page.goto(f"{server}/experiments/{experiment.pk}/")
    expect(page.locator("#state")).to_have_text("Proposing")
    page.keyboard.press("Control+k")
    sought = page.get_by_role("textbox", name="Search, compute or jump")
    sought.fill("all-gather")
    with page.expect_response("**/progress/**"):
        advance(run, RunStatus.READY)
    page.wait_for_timeout(300)
    expect(sought).to_have_value("all-gather")
    sought.fill("")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="See proposals")).to_be_visible(timeout=30_000)


def test_a_failure_appears_with_its_reason_and_the_next_step(server: str, as_engineer: Any, page: Page) -> None:
    from experiments.services import runs
    from tests.browser.factories import make_working

    experiment, run = make_working(as_engineer, "Fails")
    page.goto(f"{server}/experiments/{experiment.pk}/")
    expect(page.locator("#steps .is-now")).to_contain_text("Ingesting")
    assert runs.fail(run, "host0.xplane.pb is empty; copy it again from the host.")
    expect(page.get_by_role("alert")).to_contain_text("host0.xplane.pb is empty; copy it again from the host.")
    expect(page.locator("#steps .is-fail")).to_contain_text("Ingesting")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("#steps .is-now")).to_contain_text("Uploaded")
