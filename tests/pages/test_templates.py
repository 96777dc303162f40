"""What holds for every template: the strict content policy, and pages that work without scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEMPLATES = sorted((Path(__file__).parents[2] / "templates").rglob("*.html"))
TAG = re.compile(r"<([a-z]+)((?:[^<>{]|\{[{%#].*?[}%#]\})*)>", re.S)


def tags(path: Path) -> list[tuple[str, str]]:
    return TAG.findall(path.read_text())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_inline_style_or_script(path: Path) -> None:
    """The server sends `script-src 'self'; style-src 'self'`: what stands in the page itself would not run."""
    for name, attributes in tags(path):
        assert not re.search(r"\sstyle\s*=", attributes), (name, attributes)
        assert not re.search(r"\son[a-z]+\s*=", attributes), (name, attributes)
        if name == "script":
            assert "src=" in attributes or "application/json" in attributes
        assert "javascript:" not in attributes


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_fetched_part_has_an_address(path: Path) -> None:
    """A link that htmx takes over is a link without it; what only refreshes itself needs none."""
    for name, attributes in tags(path):
        if "hx-get" not in attributes or "every " in attributes or "palette-list" in attributes:
            continue
        assert ("href=" if name == "a" else "action=") in attributes, (name, attributes)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_text_of_users_and_profiles_is_escaped(path: Path) -> None:
    text = path.read_text()
    assert "|safe" not in text
    assert "autoescape off" not in text
