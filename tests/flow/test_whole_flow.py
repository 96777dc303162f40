"""The main job in a browser, on the application as `make run` starts it: launcher, database, broker, worker, server."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from experiments.samples.samples import SAMPLES, Sample
from tests import chromium
from tests.launcher.application import Application, children, copied, eventually, running

ANALYSIS_MS = 90_000

#: A page may take long on a machine that tests in parallel; how long pages take is measured in bench/, not here.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return browser_type_launch_args | chromium.launch_arguments()


@pytest.fixture(scope="module")
def application(first_start: Application) -> Iterator[Application]:
    with copied(first_start.home) as home, running(home) as started:
        yield started


@pytest.fixture(scope="module")
def signed_in(application: Application, browser: Any) -> Any:
    """Cookies of the administrator, who signed in with the link that the launcher printed."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(application.sign_in_link)
    if page.get_by_role("button", name=re.compile("sign in", re.IGNORECASE)).count():
        page.get_by_role("button", name=re.compile("sign in", re.IGNORECASE)).click()
    page.wait_for_url(application.address + "/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser: Any, signed_in: Any) -> Iterator[Page]:
    context = browser.new_context(storage_state=signed_in, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert not errors


def sample(key: str) -> Sample:
    return next(item for item in SAMPLES if item.key == key)


def upload(page: Page, application: Application, item: Sample, config: bool) -> None:
    page.goto(application.address + "/experiments/new/")
    page.set_input_files("#files", [str(path) for path in item.files])
    if config:
        page.get_by_role("radio", name="File", exact=True).check()
        page.set_input_files("input[name=config_file]", str(item.config))
    page.get_by_role("button", name="Start analysis").click()
    page.wait_for_url(re.compile(r"/experiments/\d+/"))


def test_recorded_profile_from_upload_to_history(page: Page, application: Application) -> None:
    """Upload with a configuration file, watch it being read, read the diagnosis, approve the first, find it again."""
    upload(page, application, sample("cpu-data2-seq2-model2"), config=True)
    expect(page.get_by_role("heading", level=2, name=re.compile(r"^\w+-bound\b"))).to_be_visible(timeout=ANALYSIS_MS)
    expect(page.locator("#steps")).to_have_count(0, timeout=ANALYSIS_MS)  # the page reloads itself no more
    expect(page.get_by_text("communication", exact=False).first).to_be_visible()
    expect(page.get_by_text("not measured").first).to_be_visible()  # a CPU has no FLOP counters

    page.get_by_role("link", name=re.compile(r"^Proposals")).first.click()
    expect(page.locator("details.det").first).to_be_visible(timeout=ANALYSIS_MS)
    title = page.locator("#details-1 > summary .muted").inner_text()
    page.locator("#proposal-1").get_by_role("button", name=re.compile("Approve")).click()
    page.get_by_role("dialog").get_by_label("Comment").fill("Tried on Friday")
    page.get_by_role("button", name="Confirm approval").click()
    expect(page.locator("#proposal-1").get_by_text("Tried on Friday")).to_be_visible()

    page.goto(application.address + "/history/")
    expect(page.get_by_text(title).first).to_be_visible()
    page.goto(application.address + "/experiments/")
    expect(page.get_by_text("small transformer", exact=False).first).to_be_visible()


def test_profile_first_then_the_form_prefilled_from_it(page: Page, application: Application) -> None:
    """A TPU profile without a configuration is read first; the form knows the chip and asks for the mesh."""
    item = sample("asap-experiment-2")
    upload(page, application, item, config=False)
    expect(page.get_by_text("Needs configuration").first).to_be_visible(timeout=ANALYSIS_MS)
    page.reload()
    expect(page.locator("#config-form")).to_be_visible()
    expect(page.locator("#config-form [name=chip]")).to_have_value("v6e")
    page.get_by_role("radio", name="File", exact=True).check()
    page.set_input_files("input[name=config_file]", str(item.config))
    page.locator("#config-form button.btn--primary").click()
    expect(page.get_by_role("heading", level=2, name=re.compile(r"^\w+-bound\b"))).to_be_visible(timeout=ANALYSIS_MS)
    expect(page.locator("#steps")).to_have_count(0, timeout=ANALYSIS_MS)
    expect(page.get_by_text("unknown").first).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^Proposals")).first.click()
    expect(page.locator("#proposal-1")).to_be_visible(timeout=ANALYSIS_MS)


def test_damaged_file_fails_in_a_sentence_and_can_be_replaced(
    page: Page, application: Application, tmp_path: Path
) -> None:
    broken = tmp_path / "host-0.xplane.pb"
    broken.write_bytes(os.urandom(20_000))
    page.goto(application.address + "/experiments/new/")
    page.set_input_files("#files", str(broken))
    page.get_by_role("button", name="Start analysis").click()
    failed = page.get_by_text("host-0.xplane.pb").first
    expect(failed).to_be_visible(timeout=ANALYSIS_MS)
    expect(page.get_by_text(re.compile("failed", re.IGNORECASE)).first).to_be_visible(timeout=ANALYSIS_MS)
    assert eventually(application.is_ready)


def test_worker_killed_while_it_reads_loses_nothing(page: Page, application: Application) -> None:
    upload(page, application, sample("asap-experiment-3"), config=True)
    worker = application.main_process("worker")
    for child in children(worker):
        os.kill(child, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    expect(page.get_by_role("heading", level=2, name=re.compile(r"^\w+-bound\b"))).to_be_visible(timeout=ANALYSIS_MS)
    assert eventually(application.is_ready)
