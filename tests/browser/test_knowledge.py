"""The knowledge base in a browser: searched, narrowed, read in place; a document is added; keyboard, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import check_readable, violations

RUNBOOK = (
    "# Runbook\n\n## Mesh rules\n\nNever more than `8` on the **model** axis. <img src=x onerror=alert(1)>\n\n"
    "| axis | most | why it is so on our clusters, as measured in the spring |\n|---|---:|---|\n"
    "| model | 8 | links |\n\n"
    "```python\n" + "mesh = jax.make_mesh((16, 4), ('data', 'model'))  # " + "long " * 40 + "\n```\n\n"
    "## Failures\n\nMicro-batch 8 runs out of memory on v5e.\n"
)


@pytest.fixture(scope="module")
def shipped(people: Any) -> None:
    """The shipped passages with their vectors, as some minutes after every start of the application."""
    from knowledge.models import Passage
    from knowledge.services.embedding import embed_some
    from knowledge.services.shipped import load_shipped

    load_shipped()
    embed_some(Passage)


@pytest.fixture
def known(shipped: None, people: Any) -> Iterator[Any]:
    """These, and no document of the team from the test before."""
    from knowledge.models import Document, Passage

    yield Passage.objects
    Document.objects.filter(team=people.team).delete()


@pytest.fixture
def own(known: Any, people: Any) -> Any:
    """A document of the team, read and embedded."""
    from django.core.files.uploadedfile import SimpleUploadedFile

    from knowledge.models import Passage
    from knowledge.services import documents
    from knowledge.services.embedding import embed_some

    document = documents.receive(
        people.team, people.engineer, SimpleUploadedFile("rules.md", RUNBOOK.encode())
    ).document
    documents.read(document.pk)
    embed_some(Passage)
    document.refresh_from_db()
    return document


@pytest.mark.nightly(of=3)
@pytest.mark.parametrize(
    "path",
    [
        "/knowledge/", "/knowledge/?q=micro-batch+out+of+memory&bottleneck=capacity", "/knowledge/?q=zzzz&tag=nothing",
        "/knowledge/passages/tpu-memory/", "/knowledge/passages/doc-{pk}-1/", "/knowledge/documents/",
        "/knowledge/documents/{pk}/", "/knowledge/documents/{pk}/delete/",
    ],
)  # fmt: skip
def test_page_is_accessible_and_fits(path: str, server: str, own: Any, as_engineer: Any, page: Page) -> None:
    address = server + path.format(pk=own.pk)
    check_readable(page, address)


def test_search_filters_and_lists_keep_each_other_and_the_address(
    server: str, own: Any, as_engineer: Any, page: Page
) -> None:
    page.goto(server + "/")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Knowledge").click()
    filters = page.get_by_role("navigation", name="Filters")
    filters.get_by_text("Addresses").click()
    filters.get_by_role("link", name="Communication").click()
    page.wait_for_url("**/knowledge/?bottleneck=communication")
    page.get_by_label("Search the passages").fill("how wide may tensor parallelism be")
    page.wait_for_url("**q=how*wide**")
    assert "bottleneck=communication" in page.url
    first = page.locator(".found > li").first
    expect(first).to_contain_text("Tensor parallel", ignore_case=True)
    why = first.get_by_role("group", name="Why it was found")
    for word in ("Semantic", "Keywords", "Fused", "rank"):
        expect(why).to_contain_text(word)
    expect(first.locator("mark").first).to_be_visible()
    page.get_by_role("link", name="keywords", exact=True).click()
    page.wait_for_url("**mode=text**")
    expect(page.locator(".found").get_by_text("Semantic", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Remove the filter Communication").click()
    expect(page.get_by_role("link", name="Remove the filter Communication")).to_have_count(0)
    expect(page.get_by_label("Search the passages")).to_have_value("how wide may tensor parallelism be")
    page.go_back()
    expect(page.get_by_role("link", name="Remove the filter Communication")).to_be_visible()
    page.goto(server + "/knowledge/?q=zzzz&tag=nothing")
    expect(page.get_by_role("heading", name="No passage answers")).to_be_visible()
    page.get_by_role("link", name="Show all passages").click()
    expect(page.get_by_role("heading", name="passages", exact=False).first).to_be_visible()


@pytest.mark.nightly
def test_a_citation_opens_in_the_drawer(server: str, known: Any, as_engineer: Any, page: Page) -> None:
    """As the proposals' page links to passages: `hx-get` into the drawer, an address without scripts."""
    page.goto(server + "/knowledge/")
    page.evaluate(
        """() => { const link = document.createElement("a"); link.href = "/knowledge/passages/tpu-memory/";
        link.textContent = "cited"; link.setAttribute("hx-get", link.href);
        link.setAttribute("hx-target", "#drawer-body");
        document.querySelector("h1").append(link); htmx.process(link); link.click(); }"""
    )
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("heading", name="A passage of the knowledge base")).to_be_visible()
    expect(drawer).to_contain_text("T_read")
    assert violations(page) == []
    drawer.get_by_role("link", name="Open the passage").click()
    page.wait_for_url("**/knowledge/passages/tpu-memory/")


def test_a_document_is_added_followed_searched_and_deleted(
    server: str, known: Any, as_engineer: Any, page: Page, tmp_path: Path
) -> None:
    from knowledge.models import Document, Passage
    from knowledge.services import documents
    from knowledge.services.embedding import embed_some

    file = tmp_path / "rules.md"
    file.write_text(RUNBOOK)
    page.goto(server + "/knowledge/documents/")
    expect(page.get_by_text("No documents yet")).to_be_visible()
    page.set_input_files("#file", file)
    page.get_by_label("Title").fill("Mesh rules of the house")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("The document is being split into passages.")).to_be_visible()
    documents.read(Document.objects.get(title="Mesh rules of the house").pk)  # the worker's part
    expect(page.get_by_role("heading", name="2 passages")).to_be_visible()  # the page follows by itself
    expect(page.get_by_text("0 of 2 passages have embeddings")).to_be_visible()
    embed_some(Passage)
    page.get_by_role("link", name="Search this document").click()
    page.wait_for_load_state()
    expect(page.get_by_role("heading", name="2 of")).to_be_visible()
    page.get_by_label("Search the passages").fill("what may stand on the model axis")
    page.wait_for_url("**q=what**")
    page.get_by_role("link", name="Mesh rules", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Mesh rules")
    expect(page.get_by_text("Mesh rules of the house, § Runbook > Mesh rules").first).to_be_visible()
    page.get_by_role("link", name="Mesh rules of the house").first.click()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete the document").click()
    expect(page.get_by_role("status").get_by_text("Deleted “Mesh rules of the house”.")).to_be_visible()
    assert not Document.objects.filter(title="Mesh rules of the house").exists()


def test_without_scripts_one_can_search_and_add(
    server: str, own: Any, as_engineer: Any, browser: Any, context: BrowserContext
) -> None:
    plain = browser.new_context(java_script_enabled=False, storage_state=context.storage_state())
    page = plain.new_page()
    page.goto(server + "/knowledge/?hardware=gpu")
    page.get_by_label("Search the passages").fill("NVLink domain")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile(r"hardware=gpu.*q=NVLink|q=NVLink.*hardware=gpu"))
    expect(page.locator(".found > li").first).to_contain_text("NVLink")
    page.goto(server + "/knowledge/documents/")
    expect(page.get_by_role("button", name="Add", exact=True)).to_be_visible()
    page.goto(server + f"/knowledge/documents/{own.pk}/")
    expect(page.get_by_role("heading", name="2 passages")).to_be_visible()
    plain.close()
