"""Campaigns: begun from an experiment, read as a pool of trials in every state, at both widths and in both themes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_readable, overflow, violations

STATES = ("begun", "ended", "huge", "broken", "advised", "launched")


@pytest.fixture(scope="module")
def campaigns(ready: Any, people: Any) -> Iterator[dict[str, int]]:
    """One that has begun, one that has ended with failures, one of 2,000 trials, one of which every trial failed, one
    in which a language model asks for trials and is refused some, one on the cluster."""
    from campaigns.models import Campaign
    from campaigns.services import campaigns as services
    from campaigns.services import running
    from launches.models import Launch
    from tests.agent.server import ScriptedServer
    from tests.browser.trials import eager, many

    made = {}
    for state in STATES:
        asked = services.Campaign(most_trials=12, expert_step_time_s=1.2, dollars_per_chip_hour=4.0)
        if state == "advised":
            with ScriptedServer(eager) as model, pytest.MonkeyPatch.context() as patch:
                patch.setenv("OPENAI_BASE_URL", model.url)
                patch.setenv("ASAP_LLM_MODEL", "scripted")
                asked.most_trials, asked.parallel, asked.use_language_model = 6, 3, True
                campaign = services.begin(ready, people.engineer, asked)
                running.run(campaign.trials.get(number=0).pk)
            made[state] = campaign.pk
            continue
        campaign = services.begin(ready, people.engineer, asked)
        made[state] = campaign.pk
        if state == "ended":
            while waiting := campaign.trials.filter(status="waiting").first():
                running.run(waiting.pk)
        elif state == "huge":
            many(campaign, 2_000, np.random.default_rng(1))
        elif state == "broken":
            many(campaign, 6, np.random.default_rng(2), failing=1.0)
        elif state == "launched":
            _launched(campaign, people)
    yield made
    Campaign.objects.filter(pk__in=made.values()).delete()
    Launch.objects.filter(experiment=ready).delete()  # nothing can be deleted while its job runs


def _launched(campaign: Any, people: Any) -> None:
    """Its first trial waits in the queue of a cluster."""
    from launches.models import ArmRun, Launch

    made = Launch.objects.create(
        team=people.team, experiment=campaign.experiment, config=campaign.config, tool="maxtext", backend="slurm",
        server="http://asap", repeats=1, steps=30,
    )  # fmt: skip
    ArmRun.objects.create(
        launch=made, arm="trial", repeat=1, status="submitted", job="4711", reason="Slurm: Resources."
    )
    campaign.trials.update(status="launched", launch=made)
    type(campaign).objects.filter(pk=campaign.pk).update(backend="cluster", tool="maxtext", steps=30)


def _photograph(page: Page, name: str) -> None:
    """Where somebody wants to look."""
    if folder := os.environ.get("ASAP_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize("state", STATES)
def test_a_pool_is_readable_in_every_state(
    state: str, server: str, campaigns: dict[str, int], as_engineer: Any, page: Page
) -> None:
    def look(theme: str, width: int) -> None:
        _photograph(page, f"campaign-{state}-{width}-{theme}")

    check_readable(page, f"{server}/campaigns/{campaigns[state]}/", "Configurations, results and failures", look)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1280, 390])
def test_a_campaign_is_begun_from_the_experiment(
    width: int, server: str, ready: Any, campaigns: dict[str, int], as_engineer: Any, page: Page
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{server}/experiments/{ready.pk}/")
    page.get_by_role("navigation", name="Experiment").get_by_role("link", name="Campaigns").click()
    _photograph(page, f"campaigns-{width}")
    assert violations(page) == []
    assert overflow(page) <= 0
    page.get_by_label("Price per chip-hour").fill("0")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert").first).to_be_visible()


def test_by_keyboard_a_campaign_is_paused_and_a_reason_read(
    server: str, campaigns: dict[str, int], as_engineer: Any, page: Page
) -> None:
    page.goto(f"{server}/campaigns/{campaigns['begun']}/")
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"{server}/campaigns/{campaigns['ended']}/?order=time")
    reason = page.locator("#trial-1 summary")
    reason.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#trial-1 details")).to_contain_text("predicted against")


@pytest.mark.nightly
def test_two_trials_are_compared(server: str, campaigns: dict[str, int], as_engineer: Any, page: Page) -> None:
    page.goto(f"{server}/campaigns/{campaigns['ended']}/difference/")
    expect(page.get_by_role("region", name="Differences, one parameter per row")).to_contain_text("Step time")
    _photograph(page, "difference")
    assert violations(page) == []
    assert overflow(page) <= 0
