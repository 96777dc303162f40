"""Every text that a person reads says things as the glossary does (experiments/glossary.toml)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from experiments import glossary

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "asapweb", "campaigns", "dialogue", "launches", "jobs", "proposals", "history", "diagnosis", "experiments",
    "knowledge", "accounts", "agent", "perfmodel", "disk", "reference_step",
)  # fmt: skip
#: The built-in reasoner reads and answers questions in words of its own.
OWN_WORDS = ("proposals/agents/reasoner/",)
#: Strings that are patterns, not texts.
PATTERN = re.compile(r"\\b|\(\?[:<!]|\\s")
#: Pages that a program writes from other sources' words.
GENERATED = re.compile(r"accuracy.*|quality|profiles|reconstruction|glossary")


def _code(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module: its string constants without docstrings, regular expressions and words without a space.

    Examples of a capability are questions in the words of those who ask; only its title is ours.
    """
    tree = ast.parse(path.read_text("utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "capability":
            bare |= {id(example) for example in node.args[1:]}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in bare:
            continue
        if " " in node.value.strip() and not PATTERN.search(node.value):
            yield node.lineno, node.value


def _markup(path: Path) -> Iterator[tuple[int, str]]:
    """What a template shows, its tooltips and labels included."""
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", " ", path.read_text("utf-8"), flags=re.DOTALL)
    shown = re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', text)
    yield 0, re.sub(r"\s+", " ", " | ".join([re.sub(r"<[^>]*>", " ", text), *shown]))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    yield 0, re.sub(r"\s+", " ", re.sub(r"```.*?```", " ", path.read_text("utf-8"), flags=re.DOTALL))


@cache
def texts() -> tuple[tuple[str, int, str], ...]:
    """(file, line, text) of everything, read once for all terms."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, int, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "/migrations/" not in name and not name.startswith(OWN_WORDS):
                yield from ((name, line, text) for line, text in _code(path))
    for path in sorted((ROOT / "templates").rglob("*.html")):
        yield from ((path.relative_to(ROOT).as_posix(), line, text) for line, text in _markup(path))
    for path in sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]):
        if not GENERATED.fullmatch(path.stem):
            yield from ((path.relative_to(ROOT).as_posix(), line, text) for line, text in _lines(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "term", [term for term in (*glossary.load(), *glossary.style()) if term.avoid], ids=lambda term: term.term
)
def test_texts_use_the_term(term: glossary.Term) -> None:
    found = [f"{name}:{line}: “{said}”" for name, line, text in texts() if (said := term.avoided(text))]
    assert found == []


def test_percentages_are_written_by_the_formatter() -> None:
    """`47 %` as everywhere, not the `47%` of Python's own format."""
    own = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\{[^{}]*:[.\d]*%\}", line)
    ]
    assert own == []


def test_the_page_of_the_glossary_is_that_of_its_file() -> None:
    assert (ROOT / "docs" / "glossary.md").read_text("utf-8") == glossary.page(), "run: make glossary"


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("Current configuration, baseline", "Keep what runs"), ("ICI", "Weights cross the wires"),
        ("80 % interval", "in four of five such cases"), ("Evidence, sources", "It rests on a profile"),
        ("MXU, tensor core", "Smaller shards use the matrix units less"),
    ],
)  # fmt: skip
def test_old_words_are_found(term: str, text: str) -> None:
    assert next(item for item in glossary.load() if item.term == term).avoided(text)
