"""Start from a step time in a browser: from the upload page through the form's live checks to three proposals."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import overflow, violations

CONFIG = {
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
}


def analysed(page: Page) -> None:
    """What the worker would do with the run that the page shows."""
    from experiments.models import Experiment
    from experiments.services import runs
    from proposals.services import coordinator

    found = re.search(r"/experiments/(\d+)/$", page.url)
    assert found
    run = runs.newest(Experiment.objects.get(pk=int(found[1])))
    assert run is not None
    coordinator.advance(run.pk)
    page.reload()


def test_the_whole_way_from_a_number_to_proposals(page: Page, server, as_engineer):
    page.goto(f"{server}/experiments/new/")
    page.get_by_role("link", name="No profile? Start from a step time").click()
    expect(page.get_by_role("heading", name="Start from a step time")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("from one number")
    page.get_by_label("Chip", exact=True).select_option("h100")
    expect(page.locator("#framework-hint")).to_contain_text("not given: priced as Megatron-Core")
    page.get_by_label("Framework").select_option("fsdp")
    expect(page.locator("#framework-hint")).to_have_text("priced as PyTorch FSDP")
    page.get_by_label("Topology").fill("8 x 8")
    sizes = page.locator('[data-axes="ici"] input[name=ici_size]')
    names = page.locator('[data-axes="ici"] input[name=ici_name]')
    for at in range(names.count()):
        size = {"data": "8", "model": "8"}.get(names.nth(at).input_value(), "")
        sizes.nth(at).fill(size)
    page.get_by_label("Model", exact=True).select_option("llama3.1-8b")
    page.get_by_label("Global batch").fill("256")
    page.get_by_label("Sequence length").fill("4096")
    page.get_by_label("Measured step time (s)").fill("10 ms")
    expect(page.locator("#err-measured-step_time_s")).to_contain_text("at the peak of 64 h100")
    page.get_by_label("Measured step time (s)").fill("4.2")
    expect(page.locator("#err-measured-step_time_s")).to_have_text("")
    expect(page.locator("#config-state")).to_contain_text("Complete")
    expect(page.locator("#config-preview")).to_contain_text('"measured"')
    assert violations(page) == []
    page.get_by_role("button", name="Propose").click()
    expect(page.get_by_role("heading", name="from one number")).to_be_visible()
    analysed(page)
    expect(page.get_by_text("Only the step time was measured.")).to_be_visible()
    assert violations(page) == []
    page.locator(".termtable a").first.click()
    expect(page.locator("#drawer-body")).to_contain_text("predicted by the performance model")
    page.goto(f"{page.url.rstrip('/')}/proposals/")
    expect(page.get_by_text("No profile: only the step time was measured").first).to_be_visible()
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert overflow(page) <= 0


@pytest.mark.nightly
def test_a_configuration_is_handed_over_and_fits_a_small_screen(page: Page, server, as_engineer):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/experiments/new/step-time/?config={json.dumps(CONFIG)}")
    expect(page.get_by_label("Global batch")).to_have_value("256")
    expect(page.get_by_label("Measured step time (s)")).to_have_value("")
    assert overflow(page) <= 0
    assert violations(page) == []
    page.get_by_role("radio", name="File").check()
    expect(page.get_by_label("or paste it")).to_be_visible()
    expect(page.get_by_label("Measured step time (s)")).to_be_hidden()
    page.get_by_label("or paste it").fill(json.dumps(CONFIG))
    page.get_by_role("button", name="Propose").click()
    expect(page.get_by_role("alert").filter(has_text="measured.step_time_s")).to_be_visible()
    assert overflow(page) <= 0
