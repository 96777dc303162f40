"""The whole loop in the browser: approve, upload the run, and see it measured, on the card and in the history."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from playwright.sync_api import Page, expect

from tests.browser.conftest import overflow, violations


def analyse(experiment_pk: int, step_s: float) -> None:
    """What the worker does with an uploaded run: its profile as read, then the real engines up to ready."""
    from experiments.models import Experiment, RunStatus
    from experiments.services import profiles, runs
    from experiments.step_profile import Step
    from proposals.services import coordinator
    from tests.browser.factories import step_profile

    run = runs.newest(Experiment.objects.get(pk=experiment_pk))
    assert run is not None
    value = dataclasses.replace(step_profile(), step_time_s=step_s, steps=tuple(Step(n, step_s) for n in (1, 2, 3)))
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    assert runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    coordinator.advance(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.READY, run.reason


@pytest.fixture
def fresh(people: Any) -> Any:
    """An experiment of its own for each test: its decisions are taken here."""
    from tests.browser.factories import make_ready

    return make_ready(people, "Loop baseline")


def test_approve_upload_measure_and_find_it_in_the_history(
    server: str, fresh: Any, as_reviewer: Any, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    page.locator("#proposal-1").get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Confirm approval").click()
    card = page.locator("#details-1")
    expect(card).to_contain_text("Awaiting measurement")
    assert violations(page) == []
    card.get_by_role("link", name="Upload its profile").click()
    expect(page.locator("main")).to_contain_text("This run measures proposal 1 of Loop baseline")
    expect(page.locator("#config_text")).to_have_value(re.compile(r"data: 8\n"))
    assert violations(page) == []
    file = tmp_path / "after.xplane.pb"
    file.write_bytes(b"\x0a\x00")
    page.set_input_files("#files", file)
    page.get_by_role("button", name="Start analysis").click()
    page.wait_for_url(re.compile(r"/experiments/\d+/$"))
    expect(page.locator("main")).to_contain_text("the measured effect is compared with the prediction")
    number = int(re.findall(r"/experiments/(\d+)/", page.url)[0])
    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    expect(page.locator("#details-1")).to_contain_text("Being measured")

    analyse(number, 1.84 / 1.2)  # the baseline took 1.84 s, with the same batch

    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    result = page.locator("#result-1")
    expect(result).to_contain_text("Predicted against measured")
    expect(result.get_by_role("row", name="Speed-up per token")).to_contain_text("1.20×")
    for theme, width in (("light", 1280), ("dark", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.reload()
        assert violations(page) == [], theme
        assert overflow(page) <= 0, width
    page.set_viewport_size({"width": 1280, "height": 900})
    result.get_by_role("link", name="all results").click()
    expect(page.get_by_role("heading", name="Predicted against measured")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("1.20×")
    assert violations(page) == [] and overflow(page) <= 0
    page.goto(f"{server}/history/?q=Loop")
    expect(page.locator("main")).to_contain_text("Halve tensor parallelism")
    page.goto(f"{server}/experiments/{number}/")
    expect(page.locator("main")).to_contain_text("The run of proposal 1 of Loop baseline")


def test_an_upload_that_looks_like_a_proposal_is_offered(server: str, fresh: Any, as_reviewer: Any, page: Page) -> None:
    from experiments.services import uploads
    from proposals.services import launching, reviews
    from tests.browser.factories import upload

    people = as_reviewer
    proposal = fresh.proposals.get(rank=1)
    reviews.decide(proposal, people.reviewer, "approved")
    uploads.receive(people.team, people.engineer, [upload()], launching.configuration_text(proposal))
    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    assert violations(page) == []
    page.locator("#result-1").get_by_role("button", name="Link it").click()
    expect(page.locator("#result-1")).to_contain_text("Being measured")


def test_the_log_of_a_failed_run_fills_in_the_cause(server: str, fresh: Any, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    page.locator("#proposal-2").get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Confirm approval").click()
    page.locator("#details-2").get_by_text("It failed…").click()
    form = page.locator("#result-2 form.failform")
    log = (
        b"step 3\n[rank3]: ValueError: attention heads (28) must be divisible by tensor parallel size (8)\nTerminated\n"
    )
    form.get_by_label("Logs").set_input_files({"name": "rank3.log", "mimeType": "text/plain", "buffer": log})
    form.get_by_role("button", name="Find the cause").click()
    expect(form).to_contain_text("A dimension of 28 is not divisible by 8.")
    expect(form).to_contain_text("Line 2 of 3")
    expect(form.get_by_label("Failure")).to_have_value("illegal_mesh")
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert overflow(page) <= 0
    form.get_by_role("button", name="Save as failed").click()
    result = page.locator("#result-2")
    expect(result).to_contain_text("Run failed")
    expect(result).to_contain_text("must be divisible by tensor parallel size (8)")
    assert violations(page) == [] and overflow(page) <= 0


def test_a_mesh_is_priced_while_one_types_and_added(server: str, fresh: Any, as_reviewer: Any, page: Page) -> None:
    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    page.get_by_role("link", name="Price a mesh of your own").click()
    page.wait_for_load_state()
    answer = page.locator("#own-answer")
    expect(answer).to_contain_text("Keep the current configuration")
    typed = page.get_by_label("Mesh, major to minor")
    typed.fill("data=4 seq=4 model=2")
    expect(answer).to_contain_text("but the topology has 64 chips per slice")
    expect(answer.get_by_role("button", name="Add as a proposal")).to_be_disabled()
    assert violations(page) == []
    typed.fill("data=16 model=4")
    expect(answer.get_by_text("Legal", exact=True)).to_be_visible()
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert overflow(page) <= 0
    page.set_viewport_size({"width": 1280, "height": 900})
    answer.get_by_role("button", name="Add as a proposal").click()
    expect(page.locator("#proposal-4")).to_contain_text("Your own")
    page.locator("#proposal-4").get_by_role("link", name="Details").click()
    card = page.locator("#details-4")
    card.get_by_text("Neighbouring configurations").click()
    card.get_by_role("link", name=re.compile("^Open ")).first.click()
    expect(page.locator("#own-answer")).to_contain_text("Step time")


def test_proposals_are_asked_for_again_within_constraints(
    server: str, fresh: Any, as_reviewer: Any, page: Page
) -> None:
    from proposals.models import PlanRequest
    from proposals.services import regenerating

    page.goto(f"{server}/experiments/{fresh.pk}/proposals/")
    page.get_by_text("Propose again under constraints").click()
    assert violations(page) == []
    page.get_by_label("Keep the global batch").check()
    page.get_by_label("Constraint on seq").select_option("keep")
    page.get_by_role("button", name="Propose again", exact=True).click()
    expect(page.locator("#asked")).to_contain_text("keep the size of the seq axis")
    regenerating.make(PlanRequest.objects.get(run__experiment=fresh).pk)
    expect(page.get_by_role("navigation", name="Plans")).to_contain_text("Plan 2 of 2")
    within = page.locator(".within")
    expect(within.get_by_role("button")).to_have_count(2)
    for theme, width in (("light", 1280), ("dark", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.reload()
        assert violations(page) == [], theme
        assert overflow(page) <= 0, width
    page.set_viewport_size({"width": 1280, "height": 900})
    within.get_by_role("button", name=re.compile("seq axis")).click()
    expect(page.locator("#asked")).to_contain_text("keep the global batch")
    expect(page.locator("#asked")).not_to_contain_text("seq")
    page.get_by_role("link", name="Plan 1", exact=True).click()
    expect(page.locator("#proposal-1")).to_contain_text("Halve tensor parallelism")
