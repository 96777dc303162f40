"""The diagnosis and the comparison as a reader uses them: sections, explorer, exports, two at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_readable, overflow, violations


@pytest.fixture(scope="package")
def second(people: Any, ready: Any) -> Any:
    from tests.browser.factories import make_ready

    return make_ready(people, "The same again")


def pair(one: Any, two: Any) -> str:
    first, other = (experiment.profiles.get().pk for experiment in (one, two))
    return f"a={first}&b={other}"


def test_the_first_screen_answers_and_the_evidence_folds(server: str, ready: Any, as_reviewer: Any, page: Page) -> None:
    """What limits the step, how sure, what first and what it could save, and the parts of the step, without scrolling;
    few stops of the tabulator before anything is unfolded."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{server}/experiments/{ready.pk}/")
    answer = page.locator(".answer")
    place = answer.bounding_box()
    assert place is not None and place["y"] + place["height"] <= 800
    expect(answer.get_by_role("link", name="Review proposal 1")).to_be_in_viewport()
    expect(answer.get_by_role("row", name=re.compile("Compute")).first).to_be_in_viewport()
    stops = "all => all.filter(e => e.checkVisibility({visibilityProperty: true}) && e.tabIndex >= 0).length"
    assert page.locator("a[href], button, input, select, summary, [tabindex]").evaluate_all(stops) <= 80
    chart = page.locator("[data-chart=roofline]")
    expect(chart).to_be_hidden()
    page.locator("summary", has_text="Roofline").click()
    expect(chart.locator("canvas").first).to_be_visible()


def test_ops_by_framework_path_lead_to_those_of_one(server: str, ready: Any, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/ops/")
    page.get_by_role("link", name="Framework path").click()
    page.get_by_role("region", name="Grouped ops").get_by_role("link", name="mlp").first.click()
    expect(page.get_by_text("module path: ")).to_be_visible()
    table = page.get_by_role("region", name="Top ops table")
    expect(table.get_by_text("flash attention")).to_be_hidden()
    page.get_by_role("link", name="Remove the filter").click()
    expect(table.get_by_text("flash attention")).to_be_visible()


def test_the_report_can_be_taken_away(server: str, ready: Any, as_reviewer: Any, page: Page, tmp_path: Path) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/")
    menu = page.locator("details[data-menu]")
    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        menu.get_by_role("link", name="JSON").click()
    download.value.save_as(tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["bottleneck"]["primary"] == "communication" and len(data["top_ops"]) == 20
    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        menu.get_by_role("link", name="Markdown").click()
    download.value.save_as(tmp_path / "report.md")
    assert "## Findings" in (tmp_path / "report.md").read_text()
    page.locator("summary", has_text="Export").click()
    page.keyboard.press("Escape")
    expect(menu.get_by_role("link", name="JSON")).to_be_hidden()
    page.locator("summary", has_text="Export").click()
    menu.get_by_role("link", name="Page to read").click()
    page.wait_for_load_state()
    page.get_by_role("link", name="96.2 %").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("Definition")


def test_two_profiles_side_by_side(server: str, ready: Any, second: Any, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Choose the other profile")).to_be_visible()
    page.get_by_label("After").select_option(str(second.profiles.get().pk))
    page.get_by_role("button", name="Compare").click()
    page.wait_for_load_state()
    expect(page.get_by_role("heading", name="Comparable: same workload on the same chips")).to_be_visible()
    expect(page.get_by_text("The configurations are the same.").first).to_be_visible()
    page.locator(".ev").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("Before")
    page.keyboard.press("Escape")
    changes = page.get_by_role("region", name="Changes op by op")
    changes.locator("summary").first.click()
    expect(changes.get_by_text("matched by").first).to_be_visible()
    page.get_by_role("navigation", name="Which changes").get_by_role("link", name="Time lost").click()
    expect(page.get_by_text("No matching change")).to_be_visible()


@pytest.mark.nightly(of=2)
@pytest.mark.parametrize("path", ["/compare/", "/compare/ops/"])
def test_the_comparison_is_accessible_and_fits(
    path: str, server: str, ready: Any, second: Any, as_reviewer: Any, page: Page
) -> None:
    def look(theme: str, width: int) -> None:
        expect(page.get_by_role("heading", name="Op by op", exact=True)).to_be_visible()

    check_readable(page, f"{server}{path}?{pair(ready, second)}", look=look)


@pytest.mark.nightly
def test_an_open_menu_and_an_open_op_are_accessible(server: str, ready: Any, as_reviewer: Any, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.locator("summary", has_text="Export").click()
    assert overflow(page) <= 0
    assert violations(page) == []


@pytest.mark.nightly
def test_a_note_that_names_a_long_op_fits_a_phone(server: str, people: Any, as_reviewer: Any, page: Page) -> None:
    from diagnosis.models import DiagnosisRecord
    from tests.browser.factories import make_ready

    experiment = make_ready(people, "A long op")
    found = DiagnosisRecord.objects.get(run__experiment=experiment)
    ops = "vmap_splash_mha_dkv_segmented_block_kv_4096_no_residuals"
    found.data = {**found.data, "warnings": [f"{ops} is above the roofline.", "Another."]}
    found.save(update_fields=["data"])
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{server}/experiments/{experiment.pk}/")
    expect(page.get_by_text(ops).first).to_be_visible()
    assert overflow(page) <= 0


#: Of each name of an op: whether it is drawn, and whether the longest line, the roof, runs through it.
NAMES_ON_THE_ROOF = """([kind, d]) => {
  const el = document.createElement("div");
  Object.assign(el.style, { width: "545px", height: "320px" });
  Object.assign(el.dataset, { chart: kind, renderer: "svg" });
  document.querySelector("main").prepend(el);
  const chart = charts.draw(el, d);
  chart.setOption({ animation: false });
  const lines = [...el.querySelectorAll("path[fill=none]")].sort((a, b) => b.getTotalLength() - a.getTotalLength());
  const at = [...Array(800).keys()].map(n => lines[0].getPointAtLength(lines[0].getTotalLength() * n / 799));
  const roof = at.map(point => point.matrixTransform(lines[0].getScreenCTM()));
  return d.points.map(point => {
    const name = [...el.querySelectorAll("text")].find(text => text.textContent === point[0]);
    if (!name) return [false, false];
    const box = name.getBoundingClientRect();
    return [true, roof.some(p => p.x > box.left && p.x < box.right && p.y > box.top + 2 && p.y < box.bottom - 2)];
  });
}"""


@pytest.mark.nightly
def test_no_name_of_an_op_crosses_the_roof(server: str, as_reviewer: Any, page: Page) -> None:
    slanted = [
        ["bitcast_add_fusion.1", 120, 160, 5, "HBM", 1],
        ["fusion.22", 1, 1.2, 4, "HBM", 2],
        ["copy.1", 0.2, 0.1, 3, "HBM", 9],
    ]
    flat = [
        ["matmul_reduce_scatter.1", 340, 640, 5, "Compute", 3],
        ["flash_attention_forward.1", 9000, 240, 5, "Compute", 4],
    ]
    page.goto(f"{server}/explore/?chip=v5e&topology=4x4&model=llama3.1-8b&global_batch=64&seq_len=8192")
    data = {"peak": 918, "bw": 1640, "points": [*slanted, *flat]}
    found = page.evaluate(NAMES_ON_THE_ROOF, ["roofline", data])
    assert not any(crosses for _, crosses in found)
    assert [drawn for drawn, _ in found[:2]] == [True, True], "HBM-bound ops lie on the slope, and are named beside it"
