"""Explore and Accuracy in a browser: sliders that keep the product, an address that holds everything, charts."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import check_readable

STATE = "chip=v5e&topology=16x16&model=llama3.1-8b&global_batch=256&seq_len=8192&precision=bf16"
MESH = "&ici_name=data&ici_size=16&ici_name=seq&ici_size=2&ici_name=model&ici_size=8"
PAGES = {
    "/explore/": "Legal, fits",
    f"/explore/?{STATE}{MESH}": "Step time against memory",
    f"/explore/?{STATE}&show=rejected": "heads do not divide",
    "/explore/?chip=v5e&topology=16x16&model=llama3.1-8b": "Inputs are missing",
    "/explore/?chip=v5e&topology=4x4&ici_name=data&ici_size=3&follow=none": "cannot be priced yet",
    "/explore/?chip=h100&topology=8x4&model=mixtral-8x7b&global_batch=256&seq_len=4096": "pipeline",
    "/experiments/{pk}/explore/": "Measured",
    "/accuracy/": "Predicted against measured",
}


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize("path", PAGES)
def test_page_is_accessible_and_fits(path: str, server: str, ready: Any, as_reviewer: Any, page: Page) -> None:
    def unfold(theme: str, width: int) -> None:
        if width >= 1280:
            page.evaluate("document.querySelectorAll('main details').forEach(part => { part.open = true; })")

    check_readable(page, server + path.format(pk=ready.pk), PAGES[path], unfold)


def size(page: Page, axis: str) -> Locator:
    return page.locator(f'[data-axis="{axis}"] [name=ici_size]')


def slider(page: Page, axis: str) -> Locator:
    return page.get_by_role("slider", name=f"{axis}, slider")


def sizes_in_address(page: Page) -> list[str]:
    return parse_qs(urlsplit(page.url).query)["ici_size"]


def test_a_slider_moves_by_keyboard_and_the_following_axis_keeps_the_product(
    server: str, as_reviewer: Any, page: Page
) -> None:
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    before = page.locator("#k-step").inner_text()
    stops = slider(page, "model").get_attribute("data-stops")
    assert stops == "1 2 4 8 16 32 64 128 256"  # of 256 chips
    slider(page, "model").focus()
    page.keyboard.press("ArrowLeft")
    expect(size(page, "model")).to_have_value("4")
    expect(size(page, "data")).to_have_value("32")
    expect(slider(page, "data")).to_have_attribute("aria-valuetext", "32")
    expect(page.locator("#x-check")).to_have_text("32×2×4 = 256 of 256 chips")
    expect(page.locator("#k-step")).not_to_have_text(before)
    expect(slider(page, "model")).to_be_focused()
    page.wait_for_url(re.compile("ici_size=32"))
    assert sizes_in_address(page) == ["32", "2", "4"]


def test_a_typed_size_and_the_back_button(server: str, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    size(page, "seq").fill("4")
    size(page, "seq").press("Enter")
    expect(size(page, "data")).to_have_value("8")
    page.wait_for_url(re.compile("ici_size=4"))
    page.get_by_label("Remat").select_option("none")
    page.wait_for_url(re.compile("remat=none"))
    with page.expect_event("load"):
        page.go_back()
    expect(page.get_by_label("Remat")).to_have_value("full")
    expect(size(page, "seq")).to_have_value("4")
    with page.expect_event("load"):
        page.go_back()
    expect(size(page, "seq")).to_have_value("2")
    expect(size(page, "data")).to_have_value("16")


def test_a_size_that_does_not_divide_is_said_beside_it(server: str, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    size(page, "seq").fill("3")
    size(page, "seq").press("Enter")
    expect(page.locator("#err-mesh-ici")).to_contain_text("256 chips per slice")
    expect(page.locator("#x-check")).to_have_attribute("data-ok", "false")
    size(page, "seq").fill("2")
    size(page, "seq").press("Enter")
    expect(page.locator("#x-check")).to_have_attribute("data-ok", "true")
    expect(page.locator("#err-mesh-ici")).to_be_empty()


def test_a_row_and_a_dot_take_their_mesh(server: str, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    page.locator(".x-take").nth(1).click()
    expect(page.locator(".x-take").nth(1)).to_have_attribute("aria-current", "true")
    taken = sizes_in_address(page)
    assert [size(page, axis).input_value() for axis in ("data", "seq", "model")] == taken
    expect(page.locator("#c-pareto")).to_have_attribute("data-drawn", "1")
    # the dot of the fastest legal mesh
    at = page.evaluate(
        """() => {
            const chart = echarts.getInstanceByDom(document.getElementById("c-pareto"));
            const data = JSON.parse(document.getElementById("x-pareto").textContent);
            const dot = data.dots.reduce((a, b) => b[3] < 2 && b[1] < a[1] ? b : a);
            const [x, y] = chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [dot[0], dot[1]]);
            return { x, y, sizes: dot[2].map(String) };
        }"""
    )
    page.locator("#c-pareto").click(position={"x": at["x"], "y": at["y"]})
    expect(page.locator("#answer")).to_contain_text("the fastest of")
    page.wait_for_function(
        "sizes => new URLSearchParams(location.search).getAll('ici_size').join() === sizes.join()", arg=at["sizes"]
    )
    assert [size(page, axis).input_value() for axis in ("data", "seq", "model")] == at["sizes"]


@pytest.mark.nightly
def test_charts_follow_a_choice_without_being_rebuilt(server: str, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    expect(page.locator("#c-pareto")).to_have_attribute("data-drawn", "1")
    page.evaluate("document.querySelector('#c-pareto canvas').dataset.mine = 'kept'")
    top = page.locator("#meshes").bounding_box()
    slider(page, "seq").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#x-check")).to_have_text("8×4×8 = 256 of 256 chips")
    page.wait_for_url(re.compile("ici_size=4"))
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.querySelector('#c-pareto canvas').dataset.mine") == "kept"
    drawn = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('c-pareto')).getOption().series.at(-1).data[0].sizes.join()"
    )
    assert drawn == "8,4,8"
    after = page.locator("#meshes").bounding_box()
    assert top is not None and after is not None and abs(top["y"] - after["y"]) < 60  # a term more or less, no jump


def test_explore_works_without_scripts(server: str, people: Any, as_reviewer: Any, context: Any, browser: Any) -> None:
    plain = browser.new_context(java_script_enabled=False)
    plain.add_cookies(context.cookies())
    page = plain.new_page()
    page.goto(f"{server}/explore/?{STATE}{MESH}")
    page.get_by_label("Sequence length").fill("4096")
    size(page, "model").fill("4")
    page.get_by_role("button", name="Price this mesh").click()
    expect(page.locator("#x-check")).to_have_text("32×2×4 = 256 of 256 chips")
    expect(page.locator("#answer")).to_contain_text("256 sequences of 4,096 tokens")
    page.locator(".x-take").first.click()
    expect(page.locator(".x-take").first).to_have_attribute("aria-current", "true")
    plain.close()
