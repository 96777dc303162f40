"""What holds for every template: the strict content policy, and pages that work without scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEMPLATES = sorted((Path(__file__).parents[2] / "templates").rglob("*.html"))
TAG = re.compile(r"<([a-z]+)((?:[^<>{]|\{[{%#].*?[}%#]\})*)>", re.S)

#: Parts whose whole page has an address of its own name.
OF_PAGE = {"dialogue-panel": "dialogue", "palette-row": "computation", "memory-event-data": "memory-event"}


def tags(path: Path) -> list[tuple[str, str]]:
    return TAG.findall(path.read_text())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_inline_style_or_script(path: Path) -> None:
    """The server sends `script-src 'self'; style-src 'self'`: inline scripts and styles would not run."""
    for name, written in tags(path):
        attributes = re.sub(r"\{%.*?%\}", " ", written)  # an argument of a template tag is no attribute
        assert not re.search(r"\sstyle\s*=", attributes), (name, attributes)
        assert not re.search(r"\son[a-z]+\s*=", attributes), (name, attributes)
        if name == "script":
            assert "src=" in attributes or "application/json" in attributes
        assert "javascript:" not in attributes


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_fetched_part_has_an_address(path: Path) -> None:
    """A link that htmx takes over is a link without it, and what fetches its own content holds or is shown beside one;
    what only refreshes itself needs none."""
    text = path.read_text()
    for name, attributes in tags(path):
        if "hx-get" not in attributes or "every " in attributes or "palette-list" in attributes:
            continue
        if name in ("a", "form"):
            assert ("href=" if name == "a" else "action=") in attributes, (name, attributes)
            continue
        fetched = re.search(r'hx-get="(?:\{% url \'([a-z-]+)\'[^"]*|\{\{ (\w+) \}\})"', attributes)
        assert fetched, (name, attributes)
        place = OF_PAGE.get(fetched[1], fetched[1]) if fetched[1] else fetched[2]
        link = rf"<(?:a [^<>]*href|form[^<>]*action)=\"\{{(?:% url '{place}'|\{{ {place} \}})"
        assert re.search(link, text), (name, attributes)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_text_of_users_and_profiles_is_escaped(path: Path) -> None:
    text = path.read_text()
    assert "|safe" not in text
    assert "autoescape off" not in text
