"""The timeline in a browser: drawn, walked through by mouse and keyboard, searched, selected, linked to ops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import overflow, violations

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
    for theme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        answer = page.goto(f"{server}/experiments/{sample.pk}/timeline/")
        assert answer is not None and answer.status == 200
        settled(page)
        assert colours(page) > 12, (theme, width)
        page.locator(".tln__tables > summary").click()
        page.locator(".tln__keys > summary").click()
        assert violations(page) == [], (theme, width)
        assert overflow(page) <= 0, (theme, width)
