"""Which computations typed words or settings lead to, with their arguments filled.  Needs no database."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from agent.tools import ToolError
from dialogue.computations.table import TABLE, Computation, OfSpending
from knowledge.embedding.minilm import embed
from perfmodel.chips import load_chips
from proposals.agents.settings import INSTEAD, SETTING_WORDS, Settings, axis_of, parse
from proposals.agents.tools.look import kpi_name
from proposals.agents.tools.shared import Configuration, arguments_of, as_tool_error, proposal
from proposals.agents.workbench import Workbench
from proposals.candidate import keeps

#: What `evaluation.fit_palette` learned from how people ask for each computation.
WEIGHTS = Path(__file__).with_name("asked.npz")
#: Characters of a text that are looked at.
SEARCHED = 400
#: Computations that words alone lead to.
MOST = 5
#: Words that say little by themselves.
COMMON = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has", "have", "how", "i",
    "if", "in", "is", "it", "me", "my", "of", "on", "or", "our", "so", "that", "the", "them", "then", "there",
    "this", "to", "up", "us", "was", "we", "what", "when", "where", "which", "who", "why", "will", "with", "would",
    "you", "your", "run",
))  # fmt: skip
#: What a computation must score to be shown, and what counts towards it beside how probable it is: a named
#: argument, a configuration for its price.
LEAST, NAMED, SETTINGS = 0.15, 0.2, 0.3
#: Where a text is cut into what it asks, and the characters of a clause that asks something.
_CLAUSES, CLAUSE = re.compile(r"(?<=[.?!;])\s+|, |: "), 12
#: Between configurations.
_OR = re.compile(r"\s+(?:or|vs\.?|versus|against)\s+|\s*;\s*", re.IGNORECASE)
#: A proposal or finding by its number, and further ones after it.
_AND = r"(?:\s*(?:,|and|or|&|vs\.?|versus|against)\s*(?:prop(?:osal)?s?\s*)?#?[1-9])*"
_PLACES = {"first": 1, "top": 1, "best": 1, "your": 1, "ur": 1, "second": 2, "third": 3}
_PICK = r"(?:prop(?:osal)?|pick|option|suggestion|recommendation|candidate|choice)"
_ORDINALS = {
    "proposal": re.compile(
        rf"(?:\bprop(?:osal)?s?\.?\s*(?:#|nr\.?|number)?|#|\bn[ro]\.?)\s*[1-9]{_AND}\b"
        rf"|\b(?:{'|'.join(_PLACES)})\s+(?:{_PICK}\b|one\b(?! of))",
        re.IGNORECASE,
    ),
    "finding": re.compile(rf"\bfindings?,?\s*(?:#|nr\.?|number)?\s*[1-9]\d?{_AND}\b", re.IGNORECASE),
}
_CHIPS = rf"(?:chips|[gt]pus|{'|'.join(load_chips())})"
#: A number of chips, or of hosts.
_COUNT = re.compile(
    rf"\b(\d{{1,5}})\s*(?:x\s*)?(?:(?:more|idle|free|spare|such|other) )?"
    rf"(?:{_CHIPS}s?|(?P<host>hosts?|nodes?|box(?:es)?|dgx\w*))\b",
    re.IGNORECASE,
)
#: A whole number without a unit.
_ALONE = re.compile(rf"(?<![\w.,$])(?<!finding )(\d{{1,6}})(?![\w%]|[.,]\d|\s?(?:%|[GMT]B|ms|s\b|x\b|{_CHIPS}))")
#: Characters of a text that a number alone may be the question of.
SHORT = 60
#: What a training run takes: tokens, and money for a chip and hour.
_NUMBER = r"(\d+(?:\.\d+)?)"
_AMOUNTS = {
    "tokens": re.compile(rf"{_NUMBER}\s*([KMBT]?)(?:illion)?\s*tok(?:ens?)?\b(?!\s*(?:/|per))", re.IGNORECASE),
    "price_per_chip_hour": re.compile(
        rf"(?:[$€]\s*{_NUMBER}|{_NUMBER}\s*(?:\$|€|(?:usd|eur|dollars?|bucks)\b|/\s*[ctg]\w+[ -]?h))()", re.IGNORECASE
    ),
}
_POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
#: Ops, longest first, whose kind a text may name.
KINDS = 40
#: Computations of a configuration.
OF_SETTINGS = ("price", "fits", "why_not", "around")
#: Share of a finding's title that a text must hold to be about it.
TITLED = 0.3
K = TypeVar("K", int, str)
_BY_KEY = {item.key: item for item in TABLE}
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9_.-]|\+(?=[a-z]))*")


@dataclass(frozen=True)
class Match:
    """A computation with its arguments.  problem: a sentence where it cannot be had."""

    computation: Computation
    arguments: dict[str, Any]
    problem: str = ""


def words_of(text: str) -> list[str]:
    """Return the words of a text, each once."""
    return list(dict.fromkeys(word.rstrip("-._") for word in _WORD.findall(text[:SEARCHED].lower())))


def telling(words: Sequence[str]) -> list[str]:
    """Return the words that say something; all where none does."""
    return [word for word in words if word not in COMMON] or list(words)


def score(words: Sequence[str], *weighted: tuple[str, float]) -> float:
    """Return how much of the words is in texts, each with its weight: the sum over the words of the best; half where a
    word only begins another, a fifth for common words beside others."""
    known = [(_WORD.findall(text.lower()), weight) for text, weight in weighted]
    faint = 0.2 if any(word not in COMMON for word in words) else 1.0
    best = ((word, max(weight * _fit(word, among) for among, weight in known)) for word in words)
    return sum(points * (faint if word in COMMON else 1.0) for word, points in best)


def _fit(word: str, among: Sequence[str]) -> float:
    begins = len(word) > 2 and any(each.startswith(word) or (len(each) > 4 and word.startswith(each)) for each in among)
    return 1.0 if word in among else begins / 2


def matches(bench: Workbench, text: str, before: Sequence[str] = ()) -> list[Match]:
    """Return the computations that a text leads to, the best first; a configuration in it always leads to one of it.

    A computation counts by how people asked for it, and by the arguments that the text names.
    before: what was asked earlier in the conversation.
    """
    asked, earlier = _configurations(bench, text, before)
    words = words_of(text)
    rest = words_of(" ".join(word for settings, _ in asked[:1] for word in settings.rest)) if asked else words
    # Beside few other words a configuration is the question, else a circumstance of it.
    share = 1.0 - len(telling(rest)) / max(len(words), 1) if asked else 0.0
    scores, found = dict(nearness(text)), []
    scores["price"] += SETTINGS * bool(asked)
    leading = max(OF_SETTINGS, key=lambda key: scores[key])  # of a configuration one question, which names the others
    scores[leading] += share
    for place, of in enumerate(TABLE):
        given, named = _filled(of, words, bench, text)
        if of.key == "other_chip":
            now = bench.config.hardware.chips
            per_host = load_chips()[given.get("chip") or bench.config.hardware.chip].chips_per_host
            found_counts = sorted(_COUNT.finditer(text), key=lambda count: bool(count["host"]))
            counts = [int(count[1]) * (per_host if count["host"] else 1) for count in found_counts]
            there: dict[str, Any] = {"chips": counts[:1]} if counts and (counts[0] != now or given) else {}
            named += 2.0 * bool(there) * (not named)
            there |= {"mesh": asked[0][0].sizes, "changes": dict(asked[0][0].changes)} if asked and named else {}
            given |= {key: value for key, value in there.items() if value}
        score = scores[of.key] + NAMED * named
        own = [match for _, match in asked] if of.key == leading else []
        if of.key == leading:
            found += [(-score, place, replace(match, computation=of)) for match in own]
        if not own and score >= LEAST and of.key in (leading, *_BY_KEY.keys() - OF_SETTINGS):
            found.append((-score, place, Match(of, given or (earlier if of.key == leading else {}))))
    return [match for _, _, match in sorted(found, key=lambda item: item[:2])[:MOST]]


def _configurations(
    bench: Workbench, text: str, before: Sequence[str]
) -> tuple[list[tuple[Settings, Match]], dict[str, Any]]:
    """Return the configurations that a text names, and what it changes of the one before it in the conversation; and
    the arguments of that one."""
    config, earlier, last = bench.config, dict[str, Any](), Settings()
    for said in before:
        settings = parse(said, config)
        base = _proposed(bench, said) or earlier
        if (settings or base is not earlier) and (found := _of_settings(bench, settings, base)) and not found.problem:
            earlier, last = found.arguments, settings or last
    named = [settings for part in _parts(text, bench) if (settings := parse(part, config))]
    proposed = _proposed(bench, text)
    plain = _ORDINALS["proposal"].sub("", INSTEAD.sub("", text))
    if not named and last and len(text) <= SHORT and (numbers := _ALONE.findall(plain)):
        named = [last.with_last(int(numbers[-1]))]
    elif not named and last and proposed is not None:
        named = [last]
    bases = [base for base in (proposed, earlier, {}) if base is not None]
    found = [(each, _of_settings(bench, each, base)) for each in named for base in bases]
    made = [match for _, match in found]
    return [(of, match) for place, (of, match) in enumerate(found) if match and match not in made[:place]], earlier


def _proposed(bench: Workbench, text: str) -> dict[str, Any] | None:
    """Return the arguments of the proposal that a text names; None where it names none."""
    numbers = _numbers("proposal", text)
    with contextlib.suppress(ToolError):
        return arguments_of(bench.config, proposal(bench, numbers[0]).proposal) if numbers else None
    return None


def _numbers(kind: str, text: str) -> list[int]:
    """Return the numbers of the proposals or findings that a text names, in its order."""
    return [
        int(word) if word.isdigit() else _PLACES[word]
        for place in _ORDINALS[kind].finditer(text)
        for word in re.findall(r"\d+|[a-z]+", place[0].lower())
        if word.isdigit() or word in _PLACES
    ]


def nearness(text: str) -> Mapping[str, float]:
    """Return by computation the root of the probability that a text asks for it, the mean over it and its clauses."""
    clauses = [part for part in _CLAUSES.split(text[:SEARCHED].strip()) if len(part) > CLAUSE]
    keys, weights = _weights()
    scores = np.exp(features([text[:SEARCHED], *clauses]) @ weights)
    shares = (scores / scores.sum(axis=1, keepdims=True)).mean(axis=0)
    known = {key: float(share) ** 0.5 for key, share in zip(keys, shares, strict=True)}
    return {item.key: known.get(item.key, 0.0) for item in TABLE}


def features(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return MiniLM's vectors of texts with a 1 behind each, (texts, 385)."""
    return np.hstack([embed(texts), np.ones((len(texts), 1), np.float32)])


@cache
def _weights() -> tuple[list[str], NDArray[np.float32]]:
    with np.load(WEIGHTS) as file:
        return [str(key) for key in file["keys"]], file["weights"].astype(np.float32)


def _parts(text: str, bench: Workbench) -> list[str]:
    """Return the configurations of a text that names several, each with a mesh; else the text."""
    parts = _OR.split(text[:SEARCHED])
    has_meshes = len(parts) > 1 and all((found := parse(part, bench.config)).ici or found.dcn for part in parts)
    return parts if has_meshes else [text]


def _of_settings(bench: Workbench, settings: Settings, base: Mapping[str, Any]) -> Match | None:
    """Return the price of a configuration; None where it is the current one.  base: arguments of the one that it
    changes; empty: the current one."""
    sizes, changes = {**base.get("mesh", {}), **settings.sizes}, {**base.get("changes", {}), **settings.changes}
    try:
        with as_tool_error():
            of = Configuration(mesh=sizes, changes=changes).candidate(bench.config)
    except ToolError as error:
        return Match(_BY_KEY["price"], {}, problem=str(error))
    if not settings.sizes and keeps(bench.config, of):  # settings as they are now: spoken of, not asked for
        return None
    return Match(_BY_KEY["price"], arguments_of(bench.config, of))


def _filled(of: Computation, words: Sequence[str], bench: Workbench, text: str) -> tuple[dict[str, Any], float]:
    """The arguments of a computation that the words name, and what naming them adds to its score."""
    for kind in _ORDINALS:
        if kind in of.arguments.model_fields and of.about == kind:
            numbers = _numbers(kind, text) or _about(bench, kind, words)
            others = {"other": numbers[1]} if of.key == "compare" and len(numbers) > 1 else {}
            return {kind: numbers[0] if numbers else 1, **others}, float(bool(numbers)) + bool(others)
    if of.key in OF_SETTINGS and (proposed := _proposed(bench, text)):
        return proposed, 0.0
    if of.arguments is OfSpending:
        amounts = {key: amount for key, pattern in _AMOUNTS.items() if (amount := _amount(pattern, text))}
        return amounts, 2.0 * bool(amounts)
    mesh, now, said = bench.config.mesh, bench.config.hardware, text.lower()
    figures = {key: kpi_name(key) for key in bench.diagnosis.kpis}
    ops = [op.name for op in bench.diagnosis.ops if len(op.name) > 3 and op.name.lower() in said]
    # `dynamic-update-slice.33` is a dynamic-update-slice.
    kinds = {op.name: re.sub(r"[.\d]+$", "", op.name).lower() for op in bench.diagnosis.ops[:KINDS]}
    spoken = {name: kind for name, kind in kinds.items() if len(kind) > 5 and kind in said}
    ops = ops or [name for name, kind in spoken.items() if "_" in kind]
    axes = {axis for axis, _ in (*mesh.ici, *mesh.dcn)} | {"dcn", *(each.axis for each in bench.diagnosis.collectives)}
    said_chips = [chip for word in words if (chip := word.removesuffix("s")) in load_chips()]
    plain = [word.rstrip("0123456789=-") for word in words]
    named: dict[str, tuple[str, float, list[str]]] = {
        "axis": ("axis", 1.0, [found for word in plain if (found := axis_of(mesh, word) or word) in axes]),
        "other_chip": ("chip", 2.0, [chip for chip in said_chips if chip != now.chip]),
        "op": ("op", 3.0, sorted(ops, key=len, reverse=True)),
        "ops": ("words", 2.0, list(spoken.values())),
        "vary": ("key", 1.0, [SETTING_WORDS[word] for word in words if word in SETTING_WORDS]),
        "figure": ("number", 0.5, _closest(words, figures)),
    }
    field, points, values = named.get(of.key, ("", 0.0, []))
    if of.key == "op" and not values:  # of no op in particular
        parts = {
            op.name: set(re.split(r"[\W_]+", op.name.lower())) & set(telling(words))
            for op in bench.diagnosis.ops[:KINDS]
        }
        likely = max(parts, key=lambda name: len(parts[name]), default="")
        return ({"op": likely}, -1.0) if likely and parts[likely] else ({}, -1.0)
    return ({field: values[0]}, points) if values else ({}, 0.0)


def _about(bench: Workbench, kind: str, words: Sequence[str]) -> list[int]:
    """Return the number of the finding that the words are about; none where they are about none, or of proposals."""
    listed = bench.diagnosis.findings if kind == "finding" else ()
    titles = {
        n: f"{each.title} {each.rule.replace('_', ' ')} {each.mesh_axis or ''}" for n, each in enumerate(listed, 1)
    }
    return _closest(words, titles, TITLED)[:1]


def _closest(words: Sequence[str], named: Mapping[K, str], least: float = 0.5) -> list[K]:
    """Return the keys of names of which the words hold at least a share, those that they hold most of first."""
    shares = {
        key: score(telling(words_of(name)), (" ".join(words), 1.0)) / len(words_of(name)) for key, name in named.items()
    }
    return sorted((key for key, share in shares.items() if share >= least), key=lambda key: -shares[key])


def _amount(pattern: re.Pattern[str], text: str) -> float:
    """Return the number that a pattern finds, with its power of a thousand; 0 where there is none."""
    found = pattern.search(text)
    if found is None:
        return 0.0
    *numbers, power = found.groups()
    return float(next(number for number in numbers if number)) * _POWERS[power.upper()]
