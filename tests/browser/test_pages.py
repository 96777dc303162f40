"""Every page, in both themes and on a narrow screen: readable by all, quiet in the console, as wide as its window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import check_readable, violations

#: Pages of the ready experiment, by what must be seen on them.
PAGES = {
    "/": "Upload a profile",
    "/experiments/?q=Ready+to+read": "Ready to read",
    "/experiments/?q=nothing+is+called+so": "No experiment matches",
    "/experiments/new/": "Drop files here",
    "/experiments/{pk}/": "Communication-bound",
    "/experiments/{pk}/ops/": "all-reduce.41",
    "/experiments/{pk}/ops/?group=module": "attention",
    "/experiments/{pk}/ops/?group=source": "model.py:81",
    "/experiments/{pk}/ops/1/": "Framework path",
    "/experiments/{pk}/ops/?group=scope": "layer",
    "/experiments/{pk}/report/": "1. Experiment details",
    "/compare/": "Compare two profiles",
    "/experiments/{pk}/evidence/bottleneck-2/": "on the model axis",
    "/experiments/{pk}/configuration/": "Configuration as JSON",
    "/experiments/{pk}/delete/": "cannot be undone",
    "/experiments/{pk}/proposals/": "Halve tensor parallelism",
    "/experiments/{pk}/proposals/rejected/": "KV heads",
    "/experiments/{pk}/dialogue/": "Which first?",
    "/experiments/{pk}/launch/": "This proposal is not approved",
    "/history/": "Optimization database",
    "/measurements/": "Predicted against measured",
    "/history/waiting/": "Awaiting measurement",
    "/settings/": "API tokens",
}


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize("path", PAGES)
def test_page_is_accessible_and_fits(path: str, server: str, ready: Any, as_reviewer: Any, page: Page) -> None:
    address = server + path.format(pk=ready.pk)
    check_readable(page, address, PAGES[path])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "Upload the first profile"), ("/experiments/", "No experiments yet"),
        ("/history/", "The database is empty"),
    ],
)  # fmt: skip
def test_empty_pages_say_why_and_what_to_do(
    path: str, words: str, server: str, people: Any, sign_in: Callable[..., None], page: Page
) -> None:
    sign_in(people.outsider)
    page.goto(server + path)
    expect(page.locator("main")).to_contain_text(words)
    assert violations(page) == []
    page.locator("main").get_by_role("link").first.click()
    expect(page.locator("main")).to_be_visible()


@pytest.mark.parametrize("path", ["/sign-in/", "/sign-in/no-such-token/", "/experiments/999999/"])
def test_pages_of_strangers_are_accessible(path: str, server: str, people: Any, page: Page) -> None:
    page.goto(server + path)
    assert violations(page) == []


def test_pages_read_without_scripts(server: str, ready: Any, people: Any, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(people.reviewer)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server}])
    page = context.new_page()
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.locator("#f-ops > summary").click()
    page.get_by_role("link", name="Share").click()
    expect(page.get_by_role("heading", name="Top ops")).to_be_visible()
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.get_by_role("link", name="740 ms").first.click()
    expect(page.get_by_text("Definition")).to_be_visible()
    page.goto(f"{server}/experiments/{ready.pk}/proposals/")
    page.get_by_role("link", name="broke a rule").click()
    expect(page.get_by_text("8 KV heads are not divisible by 16.")).to_be_visible()
    context.close()


@pytest.mark.nightly
def test_a_long_kernel_name_stays_in_the_column_of_reasons(
    server: str, ready: Any, as_reviewer: Any, page: Page
) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/proposals/")
    page.locator("#details-1 > summary").click()
    room = page.locator("#details-1 .why > div").first.evaluate(
        """column => {
          column.querySelector("p, li").append(" cudnn_" + "sdpa_sm90_flash_bprop_".repeat(6));
          return column.clientWidth - column.scrollWidth;
        }"""
    )
    assert room >= 0
