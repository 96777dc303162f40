"""A Markdown file of passages in knowledge/passages (the format: knowledge/passages/README.md), read
strictly: what is not understood is refused with its file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from knowledge import supports

FOLDER = Path(__file__).parent / "passages"
#: Beside the files: what people ask whom a passage answers, by its id.
QUESTIONS = "questions.json"
HARDWARE = ("tpu", "gpu", "any")
#: What a passage may help against: the Analyzer's verdicts, and `capacity`, memory that does not suffice.
BOTTLENECKS = ("compute", "memory", "capacity", "communication", "input", "host", "idle")
#: Raised when the same file is to be loaded differently.
FORMAT = 2

_FRONT = {"source": str, "url": str, "chapter": str}
_KEYS = {"id": str, "section": str, "tags": list, "hardware": list, "bottlenecks": list}
_OPTIONAL = {"source": str, "url": str, "computed": list, "supports": list}
_LABELS = {"Formula:": "formula", "Applies when:": "applies_when", "Not when:": "counter_indications"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_COMPUTED = re.compile(r"([a-z0-9_]+)\(([^()]*)\) = (\S+)")


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


@dataclass(frozen=True)
class ShippedPassage:
    """One `## Title` section.  computed: its numbers that tests compute again; supports: what it may be cited for.
    Neither is loaded into the database.  questions: what it answers, in the words of those who ask (questions.json)."""

    id: str
    title: str
    text: str
    formula: str
    applies_when: str
    counter_indications: str
    source: str
    section: str
    url: str
    tags: tuple[str, ...]
    hardware: tuple[str, ...]
    bottlenecks: tuple[str, ...]
    line: int
    computed: tuple[Computed, ...] = ()
    supports: tuple[supports.Support, ...] = ()
    questions: tuple[str, ...] = ()


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
    """Every file of the folder with the questions of its passages; ids are unique over all of them."""
    marks, asked = fingerprints(folder), read_questions(folder)
    files = [
        replace(
            file,
            sha256=marks[file.name],
            passages=tuple(replace(each, questions=asked.get(each.id, ())) for each in file.passages),
        )
        for file in map(read_file, passage_files(folder))
    ]
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


def read_questions(folder: Path = FOLDER) -> dict[str, tuple[str, ...]]:
    """By id of the passage that answers them; empty where the folder has none."""
    path = folder / QUESTIONS
    if not path.exists():
        return {}
    try:
        by_id = json.loads(path.read_text("utf-8"))["questions"]
        return {str(key): tuple(_question(each) for each in asked) for key, asked in by_id.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        line = getattr(error, "lineno", 1)
        raise PassageError(f'{QUESTIONS}:{line}: write {{"about": …, "questions": {{id: [text, …]}}}}.') from None


def _question(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("a question is text")
    return text.strip()


def read_file(path: Path) -> PassageFile:
    content = path.read_bytes()
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PassageError(f"{path.name}:{line}: this is not UTF-8.") from None
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        raise PassageError(f"{path.name}:1: the file begins with --- and the keys {', '.join(_FRONT)}, then ---.")
    end = lines.index("---", 1)
    front = _mapping(path.name, lines[1:end], 2, required=_FRONT, optional={})
    starts = [n for n, line in enumerate(lines) if n > end and line.startswith("## ")]
    title = _file_title(path.name, lines[end + 1 : starts[0] if starts else len(lines)], end + 2)
    if not starts:
        raise PassageError(f"{path.name}:{end + 1}: there is no passage; each begins with ## and its title.")
    passages = tuple(
        _passage(path.name, lines[start:stop], start + 1, front)
        for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True)
    )
    return PassageFile(
        path.name, fingerprint(content), title, front["source"], front["url"], front["chapter"], passages
    )


def _file_title(name: str, lines: Sequence[str], first: int) -> str:
    written = [(n, line) for n, line in enumerate(lines, first) if line.strip()]
    if len(written) != 1 or not written[0][1].startswith("# "):
        where = written[0][0] if written else first
        raise PassageError(f"{name}:{where}: only one line, `# title`, may precede the first passage.")
    return written[0][1][2:].strip()


def _passage(name: str, lines: Sequence[str], first: int, front: Mapping[str, Any]) -> ShippedPassage:
    title = lines[0][3:].strip()
    if not title:
        raise PassageError(f"{name}:{first}: the passage has no title.")
    opening = next((n for n, line in enumerate(lines[1:], 1) if line.strip()), None)
    if opening is None or lines[opening].strip() != "```yaml":
        raise PassageError(f"{name}:{first + (opening or 0)}: after its title a passage has a block ```yaml … ```.")
    closing = next((n for n in range(opening + 1, len(lines)) if lines[n].strip() == "```"), None)
    if closing is None:
        raise PassageError(f"{name}:{first + opening}: the block ```yaml is not closed by ```.")
    at = first + opening + 1
    keys = _mapping(name, lines[opening + 1 : closing], at, required=_KEYS, optional=_OPTIONAL)
    if not _ID.fullmatch(keys["id"]):
        raise PassageError(f"{name}:{at}: the id {keys['id']!r} must be lower-case words and digits joined by -.")
    for key, allowed in (("hardware", HARDWARE), ("bottlenecks", BOTTLENECKS)):
        for value in keys[key]:
            if value not in allowed:
                raise PassageError(f"{name}:{at}: {key} is {value!r}; allowed: {', '.join(allowed)}.")
    if not keys["hardware"]:
        raise PassageError(f"{name}:{at}: hardware is empty; write [any] if it applies to all hardware.")
    parts = _body(name, lines[closing + 1 :], first + closing + 1)
    return ShippedPassage(
        id=keys["id"], title=title, text=parts[""], formula=parts["formula"], applies_when=parts["applies_when"],
        counter_indications=parts["counter_indications"], source=keys.get("source", front["source"]),
        section=keys["section"], url=keys.get("url", front["url"]), tags=tuple(keys["tags"]),
        hardware=tuple(keys["hardware"]), bottlenecks=tuple(keys["bottlenecks"]), line=first,
        computed=tuple(_computed(f"{name}:{at}", entry) for entry in keys.get("computed", ())),
        supports=tuple(_support(f"{name}:{at}", line) for line in keys.get("supports", ())),
    )  # fmt: skip


def _computed(where: str, entry: str) -> Computed:
    match = _COMPUTED.fullmatch(entry)
    if match is None:
        raise PassageError(f"{where}: computed has {entry!r}; write formula(argument, …) = number as printed.")
    arguments = tuple(part.strip() for part in match[2].split(",") if part.strip())
    return Computed(match[1], arguments, match[3])


def _support(where: str, line: str) -> supports.Support:
    try:
        return supports.read(line)
    except supports.SupportError as error:
        raise PassageError(f"{where}: {error}.") from None


def _body(name: str, lines: Sequence[str], first: int) -> dict[str, str]:
    """The statement under "", and what follows each label up to an empty line or the next label."""
    statement: list[str] = []
    labelled: dict[str, list[str]] = {}
    current: list[str] | None = None
    for n, line in enumerate(lines, first):
        label = next((label for label in _LABELS if line.startswith(label)), None)
        if label is not None:
            if _LABELS[label] in labelled:
                raise PassageError(f"{name}:{n}: the passage has {label} twice.")
            current = labelled[_LABELS[label]] = [line.removeprefix(label).strip()]
        elif not line.strip():
            current = None
            statement.append("")
        elif current is not None:
            current.append(line.strip())
        else:
            if labelled:
                raise PassageError(f"{name}:{n}: the statement must precede {', '.join(_LABELS)}.")
            statement.append(line.rstrip())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(statement).strip())
    if not text:
        raise PassageError(f"{name}:{first}: the passage is empty.")
    for label, field in _LABELS.items():
        if field in labelled and not "".join(labelled[field]):
            raise PassageError(f"{name}:{first}: {label} is empty.")
    return {"": text} | {field: " ".join(labelled.get(field, [])) for field in _LABELS.values()}


def _mapping(
    name: str, lines: Sequence[str], first: int, *, required: Mapping[str, type], optional: Mapping[str, type]
) -> dict[str, Any]:
    try:
        values = yaml.load("\n".join(lines), Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = first + (error.problem_mark.line if error.problem_mark else 0)
        raise PassageError(f"{name}:{line}: not valid YAML: {error.problem}.") from None
    if not isinstance(values, dict):
        raise PassageError(f"{name}:{first}: expected keys and values: {', '.join(required)}.")
    known = {**required, **optional}
    for key, value in values.items():
        line = first + next((n for n, text in enumerate(lines) if text.startswith(f"{key}:")), 0)
        if key not in known:
            raise PassageError(f"{name}:{line}: unknown key {key}; known: {', '.join(known)}.")
        if isinstance(value, list):
            fits = known[key] is list and all(isinstance(each, str) for each in value)
        else:
            fits = known[key] is str and isinstance(value, str) and value.strip() != ""
        if not fits:
            what = "a list of words in brackets" if known[key] is list else "text in quotes"
            raise PassageError(f"{name}:{line}: {key} is {what}.")
    if missing := [key for key in required if key not in values]:
        raise PassageError(f"{name}:{first}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.")
    return values
