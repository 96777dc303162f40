"""The timeline in a browser: drawn, walked through by mouse and keyboard, searched, selected, linked to ops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_readable, overflow, violations

SAMPLES = Path(__file__).parents[2] / "experiments" / "samples"


def ingested(people: Any, files: list[Path], config: Path | None = None) -> Any:
    """An experiment of these files, read and diagnosed by the Coordinator itself."""
    from django.core.files.uploadedfile import SimpleUploadedFile

    from experiments.services import runs, uploads
    from proposals.services import coordinator

    sent = [SimpleUploadedFile(path.name, path.read_bytes()) for path in files]
    text = config.read_text("utf-8") if config else None
    experiment = uploads.receive(people.team, people.engineer, sent, config_text=text)
    run = runs.newest(experiment)
    assert run is not None
    coordinator.advance(run.pk)
    experiment.refresh_from_db()
    return experiment


@pytest.fixture(scope="module")
def sample(people: Any) -> Iterator[Any]:
    folder = SAMPLES / "asap-experiment-2"
    experiment = ingested(people, sorted(folder.glob("*.xplane.pb.gz")), folder / "config.json")
    assert experiment.state == "ready"
    yield experiment
    experiment.delete()


def settled(page: Page) -> None:
    expect(page.locator(".tln[data-state=ready]").first).to_be_visible()


def colours(page: Page, nth: int = 0) -> int:
    """How many different colours the canvas holds: an empty one has a handful."""
    script = """nth => { const canvas = document.querySelectorAll(".tln canvas")[nth];
        const drawn = canvas.getContext("2d").getImageData(0, 24, canvas.width, canvas.height - 24);
        return new Set(new Uint32Array(drawn.data.buffer)).size; }"""
    return int(page.evaluate(script, nth))


def view(page: Page) -> tuple[float, float]:
    t0, t1 = page.evaluate("(() => { const group = [...asapTimelines.values()][0]; return [group.t0, group.t1]; })()")
    return t0, t1


def test_page_is_accessible_and_fits(server: str, sample: Any, as_engineer: Any, page: Page) -> None:
    def look(theme: str, width: int) -> None:
        settled(page)
        assert colours(page) > 12, (theme, width)
        for part in (".tln__tables", ".tln__keys"):
            page.locator(part).evaluate("part => { part.open = true; }")

    check_readable(page, f"{server}/experiments/{sample.pk}/timeline/", look=look)


def test_keys_walk_through_it(server: str, sample: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{sample.pk}/timeline/")
    settled(page)
    home = view(page)
    page.locator(".tln__box").focus()
    for _ in range(4):
        page.keyboard.press("w")
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((home[1] - home[0]) * 0.6**4, rel=0.01)
    page.keyboard.press("ArrowRight")
    assert view(page)[0] > zoomed[0]
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tln__said")).to_have_text("host-0 TPU:0 async")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    event = page.locator("[data-event]")
    expect(event).to_be_visible()
    name = event.locator("strong").inner_text()
    page.keyboard.press("]")
    expect(page.locator("[data-event] strong")).not_to_have_text(name)
    expect(event.get_by_role("link", name="Op page")).to_be_visible()
    page.keyboard.press("Home")
    assert view(page) == pytest.approx(home)


def test_a_selection_is_summed_by_the_server(server: str, sample: Any, as_engineer: Any, page: Page) -> None:
    from experiments.models import Profile
    from experiments.services import traces

    page.goto(f"{server}/experiments/{sample.pk}/timeline/")
    settled(page)
    box = page.locator(".tln__box canvas").bounding_box()
    assert box is not None
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 62, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.get_by_role("heading", name="Selected range")).to_be_visible()
    t0, t1 = (round(t) for t in page.evaluate("[...asapTimelines.values()][0].selection"))
    trace = traces.load(Profile.objects.get(experiment=sample))
    total = 0
    for track in trace.tracks_of(["ops"]):
        begin = trace.starts(track).clip(t0, t1)
        end = (trace.starts(track) + trace.durations(track)).clip(t0, t1)
        total += int((end - begin).sum())
    share = total / (t1 - t0) / 16
    gap = page.locator("table[data-sums] tr", has_text="Gap").locator("td").last.inner_text()
    assert float(gap.split()[0]) / 100 == pytest.approx(1 - share, abs=0.002)
    assert f"t0={t0 / 1e12:.6f}"[:9] in page.url


def test_what_is_found_is_marked_and_stepped_through(server: str, sample: Any, as_engineer: Any, page: Page) -> None:
    from experiments.models import Profile
    from experiments.services import traces
    from experiments.trace import sums

    trace = traces.load(Profile.objects.get(experiment=sample))
    names = trace.names_like("all-reduce")
    page.goto(f"{server}/experiments/{sample.pk}/timeline/")
    settled(page)
    t0, t1 = (round(t) for t in view(page))
    count = len(sums.spans_of(trace, names, t0, t1))
    assert count > 100
    page.get_by_role("searchbox", name="Find ops by name").fill("all-reduce")
    page.keyboard.press("Enter")
    expect(page.locator(".tln__count")).to_contain_text(f"{count} spans of {len(names)} ops")
    expect(page.get_by_role("heading", name="Found: all-reduce")).to_be_visible()
    before = view(page)
    page.get_by_role("button", name="Next span").click()
    expect(page.locator(".tln__count")).to_have_text(f"1 of {count}")
    expect(page.locator("[data-event] strong")).to_contain_text("all-reduce")
    after = view(page)
    assert after[1] - after[0] < before[1] - before[0]


@pytest.mark.nightly
def test_an_address_shows_a_range_and_an_op(server: str, sample: Any, as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{sample.pk}/timeline/?op=1/all-reduce.1")
    settled(page)
    expect(page.locator(".tln__count")).to_contain_text("spans of 1 op")
    page.goto(f"{server}/experiments/{sample.pk}/timeline/?t0=2.6&t1=2.7")
    settled(page)
    expect(page.get_by_role("heading", name="Selected range")).to_be_visible()
    t0, t1 = view(page)
    assert t0 < 2.6e12 < 2.7e12 < t1


def test_tables_stand_without_scripts(server: str, sample: Any, as_engineer: Any, browser: Any, context: Any) -> None:
    plain = browser.new_context(java_script_enabled=False)
    plain.add_cookies(context.cookies())
    page = plain.new_page()
    page.goto(f"{server}/experiments/{sample.pk}/timeline/?q=all-reduce")
    expect(page.locator(".tln__box")).to_be_hidden()
    expect(page.locator("table[data-sums] tr")).to_have_count(4)
    expect(page.get_by_role("heading", name="Found: all-reduce")).to_be_visible()
    plain.close()


def test_two_profiles_share_one_scale(server: str, sample: Any, people: Any, as_engineer: Any, page: Page) -> None:
    folder = SAMPLES / "asap-experiment-3"
    other = ingested(people, sorted(folder.glob("*.xplane.pb.gz")), folder / "config.json")
    a, b = (experiment.profiles.get().pk for experiment in (sample, other))
    page.goto(f"{server}/compare/?a={a}&b={b}")
    page.locator("#h-tl").scroll_into_view_if_needed()
    expect(page.locator(".tln[data-state=ready]")).to_have_count(2)
    assert colours(page, 0) > 12 and colours(page, 1) > 12
    origins = page.evaluate("[...asapTimelines.values()][0].panels.map(panel => panel.origin - panel.data.home[0])")
    assert origins == [0, 0]
    page.locator(".tln__box").first.focus()
    page.keyboard.press("w")
    assert len({tuple(view(page))}) == 1
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert overflow(page) <= 0
    other.delete()
