"""Forms in the browser: upload, configuration, decisions, members."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import overflow, violations


def test_files_are_looked_at_before_they_are_sent(server: str, as_engineer: Any, page: Page, tmp_path: Path) -> None:
    page.goto(server + "/experiments/new/")
    good, empty, text = tmp_path / "host0.xplane.pb", tmp_path / "host1.xplane.pb", tmp_path / "readme.txt"
    good.write_bytes(b"\x0a\x00")
    empty.write_bytes(b"")
    text.write_text("hello")
    page.set_input_files("#files", [good, empty, text])
    rows = page.locator("#file-list tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("Empty")
    expect(rows.nth(2)).to_contain_text("Not a profile")
    page.get_by_role("button", name="Remove readme.txt").click()
    page.get_by_role("button", name="Remove host1.xplane.pb").click()
    expect(rows).to_have_count(1)
    assert violations(page) == []


def test_dropped_files_join_the_list(server: str, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/experiments/new/")
    page.evaluate("""() => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array([10, 0])], "dropped.xplane.pb"));
        const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
        document.querySelector(".dropzone").dispatchEvent(drop);
    }""")
    expect(page.locator("#file-list tbody tr")).to_contain_text("dropped.xplane.pb")


def test_the_mesh_is_checked_as_one_types(server: str, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/experiments/new/")
    page.get_by_text("Form", exact=True).click()
    page.get_by_label("Chip", exact=True).select_option("v6e")
    page.get_by_label("Topology").fill("4 x 4")
    page.get_by_label("Size of data").first.fill("4")
    page.get_by_label("Size of model").fill("2")
    check = page.locator("#mesh-check")
    expect(check).to_have_text("4×2 = 8, needs 16")
    expect(page.locator("#err-mesh-ici")).to_have_text("Multiply one axis by 2.")
    page.get_by_label("Size of model").fill("4")
    expect(check).to_have_text("4×4 = 16 of 16 chips")
    expect(check).to_have_attribute("data-ok", "true")
    page.get_by_label("Global batch").fill("many")
    expect(page.locator("#err-training-global_batch")).not_to_be_empty()
    expect(page.get_by_label("Global batch")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Global batch").fill("64")
    expect(page.locator("#err-training-global_batch")).to_be_empty()
    expect(page.locator("#config-state")).to_contain_text("Complete")
    shown = json.loads(page.locator("#config-preview").inner_text())
    assert shown["mesh"]["ici"] == {"data": 4, "model": 4} and shown["hardware"]["topology"] == [4, 4]
    assert violations(page) == []


@pytest.mark.nightly
def test_an_axis_of_ones_own_asks_for_its_role(server: str, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/experiments/new/")
    page.get_by_text("Form", exact=True).click()
    page.get_by_role("button", name="Add axis").first.click()
    page.keyboard.type("mdl")
    role = page.locator("#ici-r-5")
    expect(role).to_be_visible()
    page.locator("#ici-s-5").fill("4")
    role.select_option("model")
    expect(page.locator("#config-preview")).to_contain_text('"axis_roles": {"mdl": "model"}')


def test_a_waiting_run_goes_on_with_the_confirmed_configuration(server: str, as_engineer: Any, page: Page) -> None:
    from experiments.models import RunStatus
    from tests.browser.factories import make_configuring

    experiment, run = make_configuring(as_engineer, "To configure")
    page.goto(f"{server}/experiments/{experiment.pk}/")
    expect(page.get_by_role("heading", name="Profile read: confirm the configuration")).to_be_visible()
    expect(page.get_by_label("Chip")).to_have_value("v5p")
    assert violations(page) == []
    page.get_by_label("Size of data").first.fill("63")
    page.get_by_role("button", name="Save and diagnose").click()
    expect(page.locator("#err-mesh-ici")).not_to_be_empty()
    page.get_by_label("Size of data").first.fill("64")
    page.get_by_role("button", name="Save and analyse").click()
    page.wait_for_url(f"{server}/experiments/{experiment.pk}/")
    run.refresh_from_db()
    assert run.status == RunStatus.DIAGNOSING
    experiment.refresh_from_db()
    assert experiment.config["mesh"]["ici"] == {"data": 64}


def test_a_decision_is_shown_with_its_author_and_kept(server: str, as_reviewer: Any, page: Page) -> None:
    from tests.browser.factories import make_ready

    experiment = make_ready(as_reviewer, "To decide")
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    page.get_by_role("button", name="Approve proposal 1").click()
    page.get_by_role("dialog").get_by_label("Comment").fill("Enough memory <b>left</b>.")
    assert violations(page) == []
    page.get_by_role("button", name="Confirm approval").click()
    card = page.locator("#proposal-1")
    expect(card).to_contain_text("by pages-reviewer")
    expect(card).to_contain_text("Enough memory <b>left</b>.")
    expect(card.get_by_role("button", name="Approve")).to_have_count(0)
    page.get_by_role("button", name="Reject proposal 2").click()
    page.get_by_role("button", name="Confirm rejection").click()
    expect(page.locator("#proposal-2")).to_contain_text("Rejected")
    assert violations(page) == []
    page.goto(server + "/history/")  # it waits there for its measurement
    expect(page.locator("#waiting")).to_contain_text("Halve tensor parallelism, double data parallelism")
    assert violations(page) == []


def test_no_key_decides_by_itself(server: str, as_reviewer: Any, page: Page) -> None:
    """Enter in the comment is a new line; on a button it asks, and again it cancels."""
    from tests.browser.factories import make_ready

    experiment = make_ready(as_reviewer, "Not to decide by a slip")
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    for name in ("Approve proposal 1", "Reject proposal 1"):
        opener = page.get_by_role("button", name=name)
        opener.press("Enter")
        question = page.get_by_role("dialog", name=f"{name}?")
        expect(question.get_by_role("button", name="Cancel")).to_be_focused()
        question.get_by_label("Comment").press("Enter")
        expect(question.get_by_label("Comment")).to_have_value("\n")
        question.get_by_role("button", name="Cancel").press("Enter")
        expect(question).to_be_hidden()
        expect(opener).to_be_focused()
    assert {row.status for row in experiment.proposals.all()} == {"proposed"}


def test_search_narrows_the_list_and_the_address(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/experiments/")
    box = page.get_by_label("Search experiments")
    box.focus()
    page.keyboard.type("ready to read", delay=20)
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=ready(\+|%20)to(\+|%20)read$"))
    expect(box).to_be_focused()
    expect(box).to_have_value("ready to read")
    page.reload()
    expect(page.locator("#list tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Needs review").click()
    expect(page).to_have_url(re.compile("state=review"))
    page.get_by_role("region", name="Experiments table").get_by_role("link", name="Ready to read").click()
    page.wait_for_url(f"{server}/experiments/{ready.pk}/")
    page.go_back()
    # The whole page again, never the part of it that htmx had fetched from the same address.
    expect(page.get_by_role("heading", name="Experiments", exact=True)).to_be_visible()
    expect(page.locator("#list tbody tr")).to_have_count(1)


def test_ops_are_sorted_filtered_and_opened(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    from tests.browser.factories import HOSTILE

    page.goto(f"{server}/experiments/{ready.pk}/")
    page.locator("#f-ops > summary").click()
    table = page.get_by_role("region", name="Top ops table")
    expect(table.locator("tbody tr").first).to_contain_text("all-reduce.41")
    table.get_by_role("link", name="Op", exact=True).click()
    expect(table.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    page.get_by_label("Filter ops by name, path or source line").fill("onerror")
    expect(table.locator("tbody tr")).to_have_count(1)
    table.get_by_role("link", name=HOSTILE).click()
    drawer = page.get_by_role("dialog", name="Op")
    expect(drawer).to_contain_text("<script>alert(2)</script>")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


def test_numbers_open_their_evidence(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.locator(".answer__rows").get_by_role("link", name="520 ms", exact=True).click()
    drawer = page.get_by_role("dialog", name="Evidence")
    expect(drawer).to_contain_text("on the model axis")
    expect(drawer).to_contain_text("reduce-scatter.9")
    expect(drawer.locator("tr", has_text="Sum")).to_contain_text("520 ms")
    drawer.get_by_role("button", name="Close").click()
    page.locator(".strip6 > a", has_text="MFU").click()
    expect(drawer).to_contain_text("33.4 %")


@pytest.mark.nightly
def test_a_dot_of_the_roofline_opens_its_op(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/?still=1")
    page.locator("#f-roofline > summary").click()
    chart = page.locator('[data-chart="roofline"]')
    expect(chart).to_have_attribute("data-drawn", "1")
    chart.scroll_into_view_if_needed()
    spot = page.evaluate("""() => {
        const chart = echarts.getInstanceByDom(document.querySelector('[data-chart="roofline"]'));
        const at = chart.convertToPixel("grid", [650, 260]);
        return {x: at[0], y: at[1]};
    }""")
    page.wait_for_timeout(300)
    chart.click(position=spot)
    expect(page.get_by_role("dialog", name="Op")).to_contain_text("convolution fusion")


def test_the_palette_finds_an_experiment(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-list")).to_contain_text("Upload")
    page.keyboard.type("ready to")
    expect(page.locator("#palette-list [data-row]").last).to_contain_text("Ready to")
    assert violations(page) == []
    page.locator("#palette-list [data-row]").last.press("Enter")
    page.wait_for_url(f"{server}/experiments/{ready.pk}/")


def test_the_theme_is_kept(server: str, as_engineer: Any, page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(server + "/")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(server + "/history/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_an_administrator_adds_a_member_who_signs_in_once(
    server: str, people: Any, sign_in: Callable[..., None], page: Page
) -> None:
    sign_in(people.administrator)
    page.goto(server + "/settings/")
    page.get_by_label("User name").fill("new.person")
    page.locator("#m-role").select_option("viewer")
    page.get_by_role("button", name="Add member").click()
    link = page.locator("#new-link").inner_text()
    assert violations(page) == []
    page.context.clear_cookies()
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(server + "/")
    page.goto(server + "/settings/")
    expect(page.locator("main")).to_contain_text("new.person")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign out without a password?")).to_be_visible()
    assert violations(page) == [] and overflow(page) <= 0
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(server + "/sign-in/")
    page.goto(link)
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()


def test_a_token_is_shown_once(server: str, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/settings/")
    page.get_by_role("button", name="New token").click()
    token = page.locator("#new-token").inner_text()
    answer = page.request.get(server + "/api/me/", headers={"Authorization": f"Token {token}", "Cookie": ""})
    assert answer.status == 200 and answer.json()["username"] == "pages-engineer"
    page.goto(server + "/settings/")
    assert token not in page.content()
    page.get_by_role("button", name=re.compile("^Revoke")).first.click()
    expect(page.locator("#toasts")).to_contain_text("The token was revoked.")
