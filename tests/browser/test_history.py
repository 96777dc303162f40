"""The optimization database in a browser: searched, narrowed, read, imported and deleted, by mouse and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from history import seeds
from tests.browser.conftest import check_readable, violations

CSV = (
    "id,title,changes,source,speedup,measure,chip,chips,before.mesh,after.mesh\n"
    'browser-1,<b>Halve</b> the model axis,mesh,our sweep,1.31,step time,v5p,64,"data=8,model=8","data=16,model=4"\n'
    "browser-2,no such change,sharding,our sweep,1.1,step time,,,,\n"
)


@pytest.fixture(scope="module")
def records(people: Any) -> Iterator[Any]:
    """The shipped records and no other, gone again for the tests of empty pages."""
    from history.models import HistoryRecord
    from history.services import store

    HistoryRecord.objects.all().delete()
    store.seed()
    yield HistoryRecord.objects
    HistoryRecord.objects.all().delete()


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize("path", ["/history/", "/history/?q=fsdp&outcome=failed", "/history/{pk}/", "/history/import/"])
def test_page_is_accessible_and_fits(path: str, server: str, records: Any, as_engineer: Any, page: Page) -> None:
    address = server + path.format(pk=records.get(key="runs-b000-b001").pk)
    check_readable(page, address)


def test_facets_search_and_sort_keep_each_other_and_the_address(
    server: str, records: Any, as_engineer: Any, page: Page
) -> None:
    page.goto(server + "/history/")
    filters = page.get_by_role("navigation", name="Filters")
    filters.get_by_text("Outcome").click()
    filters.get_by_role("link", name="failed").click()
    failed = sum(record.outcome == "failed" for record in seeds.records())
    expect(page.get_by_role("heading", name=f"{failed} of")).to_be_visible()
    page.wait_for_url("**/history/?outcome=failed")
    page.get_by_label("Search the records").fill("micro-batch out of memory")
    page.wait_for_url("**q=micro-batch**")
    expect(page.locator("#records tbody tr").first).to_contain_text("Out of memory")
    assert "outcome=failed" in page.url
    page.get_by_role("link", name="worst first").click()
    page.wait_for_url("**sort=worst**")
    expect(page.get_by_label("Search the records")).to_have_value("micro-batch out of memory")
    page.get_by_role("link", name="Remove the filter failed").click()
    expect(page.get_by_role("link", name="Remove the filter failed")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("link", name="Remove the filter failed")).to_be_visible()
    page.get_by_label("Search the records").fill("")
    page.goto(server + "/history/?provenance=imported&chip=v6e")
    expect(page.get_by_role("heading", name="No record matches")).to_be_visible()
    page.get_by_role("link", name="Show all records").click()
    expect(page.get_by_role("heading", name=f"{len(seeds.records())} records")).to_be_visible()


def test_without_scripts_the_pages_are_links_and_forms(
    server: str, records: Any, people: Any, browser: Any, sign_in: Callable[..., None], context: Any
) -> None:
    sign_in(people.engineer)
    plain = browser.new_context(java_script_enabled=False)
    plain.add_cookies(context.cookies())
    page = plain.new_page()
    page.goto(server + "/history/")
    page.get_by_role("navigation", name="Filters").get_by_text("Outcome").click()
    page.get_by_role("navigation", name="Filters").get_by_role("link", name="slower").click()
    expect(page).to_have_url(re.compile("outcome=slower"))
    page.get_by_label("Search the records").fill("expert")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile("q=expert"))
    assert "outcome=slower" in page.url
    page.locator("#records tbody a").first.click()
    expect(page.get_by_role("heading", name="Similar records")).to_be_visible()
    page.goto(server + "/history/")
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("main")).to_contain_text("wait", ignore_case=True)
    plain.close()


def test_a_file_is_imported_found_and_deleted(
    server: str, records: Any, people: Any, sign_in: Callable[..., None], page: Page
) -> None:
    sign_in(people.administrator)
    page.goto(server + "/history/import/")
    page.set_input_files("#file", {"name": "sweep.csv", "mimeType": "text/csv", "buffer": CSV.encode()})
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("heading", name="Errors")).to_be_visible()
    expect(page.locator("main")).to_contain_text("sharding")
    assert violations(page) == []
    expect(page.locator("main")).to_contain_text("1 record added.")
    page.get_by_role("link", name="View imported records").click()
    page.get_by_role("link", name="<b>Halve</b> the model axis").click()
    expect(page.locator("#sides")).to_contain_text("model")
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete the record").click()
    expect(page.locator("#toasts")).to_contain_text("Deleted the record")
    assert not records.filter(key="browser-1").exists()
