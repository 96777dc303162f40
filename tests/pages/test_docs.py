"""The docs: links that lead somewhere, and pages short enough to be read."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from experiments.ingest.limits import Limits
from formatting import limit
from knowledge.documents.limits import LIMITS
from proposals.compiling import engine

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
#: A page that a program writes says so in its first lines.
GENERATED = re.compile(r"(?i)\b(written|generated) (by|from)\b|python -m evaluation")
MOST_LINES = 200


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"\s+", " ", page.read_text("utf-8"))):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        to = page.parent / name if name else page
        assert to.exists(), link
        assert not anchor or anchor in anchors(to), link


@pytest.mark.parametrize("page", PAGES[:-2], ids=lambda page: page.stem)
def test_pages_that_people_wrote_are_short(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    if not GENERATED.search("\n".join(lines[:6])):
        assert len(lines) <= MOST_LINES


def test_every_page_is_listed_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES[:-2] if f"docs/{page.name}" not in readme] == []


def test_limits_are_shown_as_they_are_configured() -> None:
    """In the documented default and, without a second unit, in the sentence of whoever exceeds it."""
    documented = (ROOT / "docs" / "profiles.md").read_text("utf-8")
    for field in fields(Limits):
        assert re.search(rf"`ASAP_INGEST_{field.name.upper()}`[^|]*\| {field.default} \|", documented), field.name
    sizes = [getattr(each, field.name) for each in (Limits(), LIMITS, engine.Limits()) for field in fields(each)
             if field.name.endswith("_bytes")]  # fmt: skip
    for size in sizes:
        number, unit = limit(size, "bytes").split(" ")
        assert float(number) * {"MB": 1e6, "GB": 1e9}[unit] == size
