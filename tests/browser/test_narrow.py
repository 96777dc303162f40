"""Narrow windows: every page can be reached, and a table that is wider than its place says so."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import overflow, violations

#: The mean of red, green and blue of an image in a page that loads nothing else.
_BRIGHTNESS = """async source => {
  const image = new Image(); image.src = "data:image/png;base64," + source; await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), drawn = canvas.getContext("2d");
  drawn.drawImage(image, 0, 0);
  const data = drawn.getImageData(0, 0, image.width, image.height).data;
  let sum = 0; for (let at = 0; at < data.length; at += 4) sum += data[at] + data[at + 1] + data[at + 2];
  return sum / (data.length / 4 * 3);
}"""


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


def test_wide_windows_show_every_place_at_once(server: str, as_engineer: Any, page: Page) -> None:
    page.goto(server + "/")
    navigation = page.get_by_role("navigation", name="Main")
    expect(navigation.get_by_text("More")).to_be_hidden()
    expect(navigation.get_by_role("link", name="Knowledge")).to_have_count(1)


def test_a_button_with_a_long_name_wraps(server: str, ready: Any, as_engineer: Any, page: Page) -> None:
    ready.name = "Seventh attempt at overlapping the gradients of the mixture of experts on v5p, 16×16×16"
    ready.save()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/experiments/{ready.pk}/delete/")
    expect(page.get_by_role("button", name=f"Delete {ready.name}")).to_be_visible()
    assert overflow(page) <= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_table_shows_on_which_side_more_of_it_is(
    theme: str, server: str, ready: Any, as_engineer: Any, page: Page, browser: Browser
) -> None:
    """The edge behind which columns lie is shaded, and is not once it is reached."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{server}/experiments/{ready.pk}/modules/")
    table = page.get_by_role("region", name="Modules by path")
    assert table.evaluate("it => it.scrollWidth > it.clientWidth + 40")
    blank = browser.new_page()
    begun = _edges(page, blank, table)
    table.evaluate("it => it.scrollTo(it.scrollWidth, 0)")
    ended = _edges(page, blank, table)
    blank.close()
    assert abs(begun["right"] - ended["right"]) > 5
    assert abs(begun["left"] - ended["left"]) > 5


def _edges(page: Page, blank: Page, table: Locator) -> dict[str, float]:
    """Brightness of strips of 3 px at both sides of the table, below its rows' text."""
    box = table.bounding_box()
    assert box is not None
    found = {}
    for side, x in (("left", box["x"]), ("right", box["x"] + box["width"] - 3)):
        clip = {"x": x, "y": box["y"], "width": 3, "height": box["height"]}
        shot = page.screenshot(clip=clip, full_page=True)  # type: ignore[arg-type]
        found[side] = float(blank.evaluate(_BRIGHTNESS, base64.b64encode(shot).decode()))
    return found


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
