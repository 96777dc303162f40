"""Every text that a person or a language model reads uses the words of the glossary (experiments/glossary.toml).

Docstrings and comments too: those of capabilities, tools and views are shown in the palette, by MCP and in the REST
schema, and the others are what the next engineer reads.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from experiments import glossary

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "asapweb", "campaigns", "dialogue", "launches", "jobs", "proposals", "history", "diagnosis", "experiments",
    "knowledge", "accounts", "agent", "perfmodel", "disk", "reference_step", "formatting", "evaluation", "bench",
)  # fmt: skip
#: Texts in the words of others: user phrases that are recognised, the glossary itself, quoted logs and messages.
OTHERS = (
    "experiments/glossary.toml", "proposals/agents/capabilities/phrases.toml",
    "proposals/agents/reasoner/described.toml", "evaluation/questions/", "evaluation/data/", "evaluation/off_topic.txt",
    "docs/glossary.md", "knowledge/synonyms.toml",
    "evaluation/steps/scenarios.toml",  # the names of cases seed their noise
)  # fmt: skip
#: Whole files that are text.
TEXTS = (
    "docs/*.md", "README.md", "CHANGELOG.md", "Makefile", "bin/*", "*/**/prompts/*.md", "knowledge/passages/README.md",
    "proposals/proposer/sentences.md",
)  # fmt: skip
#: Strings that are patterns, not texts.
PATTERN = re.compile(r"\\b|\(\?[:<!]|\\s")
#: Strings and comments of Python and of JavaScript.
TOKEN = {
    ".py": re.compile(
        r"(?P<comment>#[^\n]*(?:\n[ \t]*#[^\n]*)*)|"
        r'[rRbBuUfF]{0,2}(?P<string>"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')',
        re.DOTALL,
    ),
    ".js": re.compile(
        r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`(?:[^`\\]|\\.)*`)',
        re.DOTALL,
    ),
}
#: The examples of a capability are questions in the words of those who ask; only its title is ours.
EXAMPLES = re.compile(r'(@capability\(\s*"[^"]*",).*?\n\)\n', re.DOTALL)
#: Keys of JSON objects that say what they hold in words that the glossary avoids.
KEY = re.compile(r'"([a-z_]*(?:what_(?:runs|ran)|stands_|(?:^|_)told|is_made_of|one_step_away)[a-z_]*)"')
#: Reads the keys of results that earlier versions stored.
OLD_KEYS = "proposals/agents/grounding_evidence.py"


@dataclass(frozen=True)
class Texts:
    """All texts as one, in lower case, to search it once for each phrase.  starts: where each of `places` begins."""

    whole: str
    starts: tuple[int, ...]
    places: tuple[str, ...]

    def found(self, phrase: str) -> Iterator[str]:
        literal = max(re.findall(r"[a-z ]{4,}", re.sub(r"\([^()]*\)\??|\\b|\w\?", "|", phrase)), key=len, default="")
        if literal in self.whole:
            for match in re.finditer(phrase, self.whole):
                yield f"{self.places[bisect(self.starts, match.start()) - 1]}: “{match[0]}”"


def _code(path: Path, name: str) -> Iterator[str]:
    """Comments, docstrings, and strings with a space, joined where they adjoin."""
    source = path.read_text("utf-8")
    if name.startswith("proposals/agents/capabilities/"):
        source = EXAMPLES.sub(r"\1)", source)
    joined, end = "", -1
    for match in TOKEN[path.suffix].finditer(source):
        own_line = not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        docstring = own_line and match[0].startswith('"""')
        if docstring or match["comment"]:
            yield re.sub(r"\n\s*[#*]?:?", " ", match[0])
            continue
        if end >= 0 and not source[end : match.start()].strip():
            joined += match["string"][1:-1]
        else:
            yield from _text(joined)
            joined = match["string"].strip('"') if match[0].endswith('"""') else match["string"][1:-1]
        end = match.end()
    yield from _text(joined)


def _text(joined: str) -> Iterator[str]:
    if " " in joined.strip() and not PATTERN.search(joined):
        yield re.sub(r"\{[^{}]*\}", "{}", joined)


def _markup(path: Path) -> str:
    """What a template shows, its tooltips and labels included."""
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", " ", path.read_text("utf-8"), flags=re.DOTALL)
    shown = re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', text)
    return " | ".join([re.sub(r"<[^>]*>", " ", text), *shown])


def _files(*patterns: str) -> Iterator[tuple[Path, str]]:
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and "/migrations/" not in name and not name.startswith(OTHERS):
                yield path, name


@cache
def texts() -> Texts:
    pieces: list[tuple[str, str]] = []
    for path, name in _files(*(f"{package}/**/*.py" for package in PACKAGES), "static/js/*.js"):
        pieces += ((name, text) for text in _code(path, name))
    for path, name in _files("templates/**/*.html"):
        pieces.append((name, _markup(path)))
    for path, name in _files(*TEXTS, *(f"{package}/**/*.toml" for package in PACKAGES)):
        # Code of a language is that language's; a block without one is prose.
        text = re.sub(r"^```\w+$.*?^```$", " ", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        pieces.append((name, re.sub(r"\n\s*#", " ", text)))
    starts, at, clean = [], 0, []
    for _, text in pieces:
        clean.append(re.sub(r"\s+", " ", text).lower())
        starts.append(at)
        at += len(clean[-1]) + 1
    return Texts("\n".join(clean), tuple(starts), tuple(name for name, _ in pieces))


@pytest.mark.parametrize(
    "term", [term for term in (*glossary.load(), *glossary.style()) if term.avoid], ids=lambda term: term.term
)
def test_texts_use_the_term(term: glossary.Term) -> None:
    assert [hit for phrase in term.avoid for hit in texts().found(phrase)] == []


@pytest.mark.parametrize(
    "text",
    [
        "return the computations that a text leads to, the most probable first",  # docstring
        "experiments/ runs and profiles: ingest/",  # code block of docs without a language
        "you are the coordinator of asap web",  # prompt
        "show all events",  # template
        "start the application; port=8080",  # makefile
        "there is no finding {}; there are {}.",  # string with values
    ],
)
def test_every_kind_of_text_is_searched(text: str) -> None:
    assert text in texts().whole


def test_keys_of_results_say_what_they_hold() -> None:
    """Keys of tool results are shown in the dialogue under *Input and result*, and are part of REST and MCP."""
    found = [
        f"{name}: {key}"
        for path, name in _files(*(f"{package}/**/*.py" for package in PACKAGES[:-2]))
        if name != OLD_KEYS
        for key in KEY.findall(path.read_text("utf-8"))
    ]
    assert found == []


def test_percentages_are_written_by_the_formatter() -> None:
    """`47 %` as everywhere, not the `47%` of Python's own format."""
    own = [
        f"{name}:{number}"
        for path, name in _files(*(f"{package}/**/*.py" for package in PACKAGES[:-2]))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "%}" in line and re.search(r"\{[^{}]*:[.\d]*%\}", line)
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
