"""Narrow windows: every page can be reached, and a table that is wider than its place says so."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import overflow, violations


def test_every_place_can_be_reached_on_a_phone(server: str, as_engineer: Any, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server + "/")
    navigation = page.get_by_role("navigation", name="Main")
    navigation.get_by_text("More").click()
    assert violations(page) == []
    assert overflow(page) <= 0
    for place in ("Knowledge", "Accuracy", "Settings"):
        if place != "Knowledge":
            navigation.get_by_text("More").click()
        navigation.get_by_role("link", name=place).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(place)


@pytest.mark.nightly
def test_a_button_with_a_long_name_wraps(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    ready.name = "Seventh attempt at overlapping the gradients of the mixture of experts on v5p, 16×16×16"
    ready.save()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/experiments/{ready.pk}/delete/")
    expect(page.get_by_role("button", name=f"Delete {ready.name}")).to_be_visible()
    assert overflow(page) <= 0


@pytest.mark.nightly
def test_the_panel_beside_the_proposals_moves_nothing_when_it_comes(server: str, as_reviewer: Any, page: Page) -> None:
    from tests.browser.factories import make_ready

    experiment = make_ready(as_reviewer, "Does not jump")
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto(f"{server}/experiments/{experiment.pk}/proposals/")
    expect(page.locator("#dialogue").get_by_role("textbox").first).to_be_visible()
    shifts = page.evaluate(
        """() => new Promise(done => {
            let sum = 0;
            new PerformanceObserver(list => { for (const shift of list.getEntries()) sum += shift.value; })
                .observe({ type: "layout-shift", buffered: true });
            setTimeout(() => done(sum), 300);
        })"""
    )
    assert shifts < 0.05
