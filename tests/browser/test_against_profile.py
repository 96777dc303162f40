"""The form of a configuration that its profile contradicts, in the browser."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.files import File
from playwright.sync_api import Page, expect

from experiments.models import Experiment, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import profiles, runs, uploads
from tests.browser.conftest import violations

SAMPLE = next(sample for sample in SAMPLES if sample.key == "asap-experiment-3")


@pytest.fixture(scope="module")
def value(people: Any) -> Any:
    """What its profile says."""
    from experiments.ingest import read_profile

    return read_profile(SAMPLE.files)


@pytest.fixture
def wrong(people: Any, value: Any) -> Experiment:
    """Experiment 3 of the paper under another chip, another order of the axes and another batch; read, and waiting."""
    sample = SAMPLE
    config = json.loads(sample.config.read_text())
    config["hardware"]["chip"] = "v6e"
    config["mesh"]["ici"] = {"seq": 16, "data": 4, "model": 4}
    with sample.files[0].open("rb") as file:
        experiment = uploads.receive(people.team, people.engineer, [File(file, name="third.xplane.pb.gz")],
                                     json.dumps(config), "wrongly configured")  # fmt: skip
    run = runs.newest(experiment)
    profiles.store(run.profile, value, profiles.write(run, value))
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    assert runs.move(run, RunStatus.INGESTING, RunStatus.CONFIGURING, actor="coordinator")
    return experiment


def test_each_contradiction_is_decided_beside_its_field(
    server: str, as_engineer: Any, wrong: Experiment, page: Page
) -> None:
    page.goto(f"{server}/experiments/{wrong.pk}/")
    chip, mesh = page.locator("#against-hardware-chip"), page.locator("#against-mesh-ici")
    expect(chip).to_contain_text("the profile was recorded on TPU v5e")
    expect(mesh).to_contain_text("groups of 16 devices, stride 4")
    expect(page.locator("#against-summary")).to_contain_text("in 2 fields")
    assert violations(page) == []

    # Nothing is saved while one of them is open.
    page.get_by_role("button", name="Save and diagnose").last.click()
    expect(page.locator("#against-summary")).to_contain_text("in 2 fields")

    mesh.get_by_role("button", name=re.compile("Use the profile’s value")).click()
    expect(page.locator('input[name="ici_name"]').first).to_have_value("data")
    expect(page.locator("#against-mesh-ici")).to_be_hidden()
    page.locator("#against-hardware-chip").get_by_label(re.compile("Keep mine")).check()
    expect(page.locator("#against-summary")).to_be_hidden()
    assert violations(page) == []
    page.get_by_role("button", name=re.compile("^Save and")).last.click()
    page.wait_for_url(f"{server}/experiments/{wrong.pk}/")
    wrong.refresh_from_db()
    assert list(wrong.config["mesh"]["ici"].items()) == [("data", 4), ("seq", 16), ("model", 4)]
    assert [item["field"] for item in wrong.config_kept] == ["hardware.chip"]


def test_enter_saves_and_does_not_take_the_profiles_value(
    server: str, as_engineer: Any, wrong: Experiment, page: Page
) -> None:
    page.goto(f"{server}/experiments/{wrong.pk}/")
    page.get_by_role("textbox", name="Name").press("Enter")
    page.wait_for_url(f"{server}/experiments/{wrong.pk}/configuration/")
    expect(page.get_by_label("Chip", exact=True)).to_have_value("v6e")


@pytest.mark.nightly
def test_what_the_profile_says_can_be_read_with_its_evidence(
    server: str, as_engineer: Any, wrong: Experiment, page: Page
) -> None:
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{server}/experiments/{wrong.pk}/")
        page.get_by_text("Configuration found in the profile").click()
        table = page.get_by_role("table").filter(has_text="Evidence").first
        expect(table).to_contain_text("d_model")
        expect(table).to_contain_text("8,192")
        expect(table).to_contain_text("unavailable")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
