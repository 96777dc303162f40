"""A Markdown file of passages in knowledge/passages (the format: knowledge/passages/README.md), read
strictly: what is not understood is refused with its file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from knowledge.supports import Support
from knowledge.supports import read as read_support

FOLDER = Path(__file__).parent / "passages"
#: Beside the files: what people ask whom a passage answers, by its id.
QUESTIONS = "questions.json"
#: What a passage may help against: the Analyzer's verdicts, and `capacity`, memory that does not suffice.
Bottleneck = Literal["compute", "memory", "capacity", "communication", "input", "host", "idle"]
BOTTLENECKS: tuple[str, ...] = get_args(Bottleneck)
#: Raised when the same file is to be loaded differently.
FORMAT = 2

_HEAD = re.compile(r"---\n(?P<front>.*?)\n---\n\s*# (?P<title>.+)\s*", re.S)
_TITLE = re.compile(r"^## *(?P<title>.*)$", re.M)
_PASSAGE = re.compile(r"\s*```yaml\n(?P<keys>.*?)\n```\n(?P<body>.*)", re.S)
_LABEL = re.compile(r"^(Formula|Applies when|Not when):", re.M)
_FIELDS = {"Formula": "formula", "Applies when": "applies_when", "Not when": "counter_indications"}
_COMPUTED = re.compile(r"([a-z0-9_]+)\(([^()]*)\) = (\S+)")
_STRICT = ConfigDict(extra="forbid")
T = TypeVar("T")
Text = Annotated[str, Field(min_length=1)]


class PassageError(Exception):
    """A file is not as the format says; one sentence that begins with file:line."""


@dataclass(frozen=True)
class Computed:
    """A number of a passage that can be computed again: `ici_ridge(v5p, 3) = 850`.

    formula: its name in tests/knowledge/formulas.py; arguments: as written there; printed: the number as the passage
    prints it, thousands separated by commas.
    """

    formula: str
    arguments: tuple[str, ...]
    printed: str


def _computed(entry: object) -> Computed:
    if not isinstance(entry, str) or (match := _COMPUTED.fullmatch(entry)) is None:
        raise ValueError(f"{entry!r} is to be formula(argument, …) = number as printed")
    return Computed(match[1], tuple(part.strip() for part in match[2].split(",") if part.strip()), match[3])


@dataclass(frozen=True)
class ShippedPassage:
    """One `## Title` section, as its keys and its text say."""

    __pydantic_config__ = _STRICT
    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: Text
    text: Text
    source: Text
    section: Text
    url: Text
    tags: tuple[str, ...]
    hardware: Annotated[tuple[Literal["tpu", "gpu", "any"], ...], Field(min_length=1)]
    bottlenecks: tuple[Bottleneck, ...]
    line: int
    formula: str = ""
    applies_when: str = ""
    counter_indications: str = ""
    # Neither is loaded into the database: its numbers that tests compute again, and what it may be cited for.
    computed: tuple[Annotated[Computed, BeforeValidator(_computed)], ...] = ()
    supports: tuple[Annotated[Support, BeforeValidator(read_support)], ...] = ()
    questions: tuple[Text, ...] = ()  # what it answers, in the words of those who ask (questions.json)

    @property
    def embedding_text(self) -> str:
        """Return what its vector is of."""
        return embedding_text(self.title, self.text, self.tags)


def embedding_text(title: str, text: str, tags: Sequence[str]) -> str:
    """Return what a passage's vector is of.  Symbols of a formula say nothing to a language model; tags are what people
    call the matter."""
    return "\n".join(filter(None, (title, text, " ".join(tags).replace("_", " "))))


@dataclass(frozen=True)
class Front:
    """Hold the source of a file's passages, unless they give their own."""

    __pydantic_config__ = _STRICT
    source: Text
    url: Text
    chapter: Text


@dataclass(frozen=True)
class PassageFile:
    name: str
    sha256: str
    title: str
    source: str
    url: str
    chapter: str
    passages: tuple[ShippedPassage, ...]


def fingerprint(content: bytes, questions: bytes = b"") -> str:
    return sha256(b"%d\n" % FORMAT + content + questions).hexdigest()


def fingerprints(folder: Path = FOLDER) -> dict[str, str]:
    """By name of the file; where the questions change, those of all files do."""
    questions = folder / QUESTIONS
    asked = questions.read_bytes() if questions.exists() else b""
    return {path.name: fingerprint(path.read_bytes(), asked) for path in passage_files(folder)}


def passage_files(folder: Path = FOLDER) -> list[Path]:
    return sorted(path for path in folder.glob("*.md") if path.name != "README.md")


def read_all(folder: Path = FOLDER) -> list[PassageFile]:
    """Return every file of the folder with the questions of its passages; ids are unique over all of them."""
    marks, asked = fingerprints(folder), read_questions(folder)
    files = [replace(read_file(path, asked), sha256=marks[path.name]) for path in passage_files(folder)]
    seen: dict[str, str] = {}
    for file in files:
        for passage in file.passages:
            where = f"{file.name}:{passage.line}"
            if passage.id in seen:
                raise PassageError(f"{where}: the id {passage.id} is taken by {seen[passage.id]}.")
            seen[passage.id] = where
    if unknown := sorted(asked.keys() - seen.keys()):
        raise PassageError(f"{QUESTIONS}:1: there is no passage {', '.join(unknown)}.")
    return files


def read_questions(folder: Path = FOLDER) -> dict[str, list[str]]:
    """Return questions by id of the passage that answers them; empty where the folder has none."""
    path = folder / QUESTIONS
    if not path.exists():
        return {}
    try:
        return TypeAdapter(dict[str, list[Text]]).validate_python(json.loads(path.read_text("utf-8"))["questions"])
    except (ValueError, KeyError, TypeError) as error:
        line = getattr(error, "lineno", 1)
        raise PassageError(f'{QUESTIONS}:{line}: write {{"about": …, "questions": {{id: [text, …]}}}}.') from None


def read_file(path: Path, asked: Mapping[str, list[str]] | None = None) -> PassageFile:
    """Return the passages of a file, with the questions `asked` of them by id.  Raises PassageError."""
    content = path.read_bytes()
    try:
        text = content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PassageError(f"{path.name}:{line}: this is not UTF-8.") from None
    titles = list(_TITLE.finditer(text))
    head = _HEAD.fullmatch(text[: titles[0].start()] if titles else text)
    if head is None or not titles or "\n" in head["title"].strip():
        expected = "--- with source, url and chapter, ---, `# title` and passages, each below `## title`"
        raise PassageError(f"{path.name}:1: the file is to be {expected}.")
    front = _validated(f"{path.name}:2", Front, _keys(f"{path.name}:2", head["front"]))
    passages = []
    for title, end in zip(titles, [*(each.start() for each in titles[1:]), len(text)], strict=True):
        line = text.count("\n", 0, title.start()) + 1
        where = f"{path.name}:{line}"
        parts = _PASSAGE.fullmatch(text, title.end(), end)
        if parts is None:
            raise PassageError(f"{where}: after its title a passage has a block ```yaml … ``` and a statement.")
        values: dict[str, Any] = {
            "source": front.source,
            "url": front.url,
            "title": title["title"].strip(),
            "line": line,
        }
        values |= _keys(where, parts["keys"]) | _body(where, parts["body"])
        values["questions"] = (asked or {}).get(str(values.get("id")), [])
        passages.append(_validated(where, ShippedPassage, values))
    return PassageFile(
        path.name, fingerprint(content), head["title"].strip(), front.source, front.url, front.chapter, tuple(passages)
    )


def _keys(where: str, text: str) -> dict[str, Any]:
    try:
        values = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        raise PassageError(f"{where}: not valid YAML: {error.problem}.") from None
    if not isinstance(values, dict):
        raise PassageError(f"{where}: expected keys and values.")
    return values


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validated(where: str, kind: type[T], values: dict[str, Any]) -> T:
    try:
        return _adapter(kind).validate_python(values)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PassageError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def _body(where: str, text: str) -> dict[str, str]:
    """Return the statement, and what follows each label up to an empty line or the next label."""
    statement, *labelled = _LABEL.split(text)
    fields = {"text": re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in statement.split("\n")).strip())}
    for label, content in zip(labelled[::2], labelled[1::2], strict=True):
        if _FIELDS[label] in fields or not content.strip() or "\n\n" in content.strip():
            raise PassageError(f"{where}: {label}: is there twice, is empty, or has text of the statement behind it.")
        fields[_FIELDS[label]] = " ".join(content.split())
    return fields
