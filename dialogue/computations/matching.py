"""Which computations typed words or settings lead to, with their arguments filled.  Needs no database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.tools import Arguments, ToolError
from dialogue.computations.arguments import (
    OfAxis,
    OfChip,
    OfConfiguration,
    OfKey,
    OfNumber,
    arguments_of,
    candidate_of,
)
from dialogue.computations.computation import REGISTRY, Computation
from dialogue.computations.settings import SETTING_WORDS, Settings, axis_of, parse
from dialogue.computations.values import FIGURES
from formatting.numbers import whole_number
from perfmodel.chips import load_chips
from perfmodel.workload import REMAT, SHARDING
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate

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
#: What a computation must score to be shown.
_LEAST = 1.5
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True)
class Match:
    """A computation with its arguments.  of: the configuration that was typed, for computations about one; problem: a
    sentence where it cannot be had."""

    computation: Computation
    arguments: dict[str, Any]
    of: Candidate | None = None
    problem: str = ""


def words_of(text: str) -> list[str]:
    """Return the words of a text, each once."""
    return list(dict.fromkeys(_WORD.findall(text[:SEARCHED].lower())))


def telling(words: Sequence[str]) -> list[str]:
    """Return the words that say something; all where none does."""
    return [word for word in words if word not in COMMON] or list(words)


def score(words: Sequence[str], *weighted: tuple[str, float]) -> float:
    """Return how much of the words is in texts, each with its weight: the sum over the words of the best; half where a
    word only begins another, a fifth for common words beside others."""
    total = 0.0
    faint = 0.2 if any(word not in COMMON for word in words) else 1.0
    for word in words:
        best = 0.0
        for text, weight in weighted:
            known = _WORD.findall(text.lower())
            if word in known:
                best = max(best, weight)
            elif len(word) > 2 and any(
                each.startswith(word) or (len(each) > 4 and word.startswith(each)) for each in known
            ):
                best = max(best, weight / 2)
        total += best * (faint if word in COMMON else 1.0)
    return total


def matches(bench: Workbench, text: str) -> list[Match]:
    """Return the computations that a text leads to, the best first.

    A configuration in it always leads to its price, then to whether it fits, why it is not proposed, what is around.
    """
    settings = parse(text, bench.config)
    found = _of_settings(bench, settings) if settings else []
    words = words_of(" ".join(settings.rest) if settings else text)
    found += _variants(bench, words)
    scored = []
    for place, of in enumerate(REGISTRY.values()):
        if any(match.computation is of for match in found):  # it is there with more of its arguments
            continue
        given, named = _filled(of, words, bench)
        points = score(words, (of.title, 3.0), (of.words, 2.0)) + named
        if points >= _LEAST:
            scored.append((-points, place, Match(of, given)))
    return found + [match for _, _, match in sorted(scored, key=lambda item: item[:2])[:MOST]]


def _of_settings(bench: Workbench, settings: Settings) -> list[Match]:
    sizes = {**settings.ici, **{f"dcn.{axis}": size for axis, size in settings.dcn.items()}}
    try:
        of = candidate_of(bench, OfConfiguration(mesh=sizes, changes=dict(settings.changes)))
    except ToolError as error:
        return [Match(REGISTRY["price"], {}, problem=str(error))]
    given = arguments_of(bench, of)
    return [Match(REGISTRY[key], given, of) for key in ("price", "fits", "why_not", "around")]


def _variants(bench: Workbench, words: Sequence[str]) -> list[Match]:
    """The prices of the other values of a setting that is named alone."""
    training, now = bench.config.training, bench.config.mesh.to_json()
    for key, values in (("remat", REMAT), ("weight_sharding", SHARDING)):
        if [SETTING_WORDS.get(word) for word in words] == [key]:
            options = [Candidate(now, {key: value}) for value in values if value != getattr(training, key)]
            return [Match(REGISTRY["price"], arguments_of(bench, of), of) for of in options]
    return []


def _filled(of: Computation, words: Sequence[str], bench: Workbench) -> tuple[dict[str, Any], float]:
    """The arguments of a computation that the words name, and what naming them adds to its score."""
    numbers = [number for word in words if (number := whole_number(word, digits=3)) is not None]
    for kind in ("proposal", "finding"):
        if kind in of.arguments.model_fields:
            is_named = bool(numbers) and any(word.startswith(kind) for word in words)
            return {kind: numbers[0] if is_named else 1}, float(is_named)
    mesh, text = bench.config.mesh, " ".join(words)
    axes = {axis for axis, _ in (*mesh.ici, *mesh.dcn)} | {"dcn"}
    named: dict[type[Arguments], tuple[str, float, list[str]]] = {
        OfAxis: ("axis", 1.0, [found for word in words if (found := axis_of(mesh, word) or word) in axes]),
        OfChip: ("chip", 2.0, [word for word in words if word in load_chips()]),
        OfKey: ("key", 1.0, [SETTING_WORDS[word] for word in words if word in SETTING_WORDS]),
        OfNumber: ("number", 0.5, [key for key, name in FIGURES.items() if name.lower() in text]),
    }
    field, points, values = named.get(of.arguments, ("", 0.0, []))
    return ({field: values[0]}, points) if values else ({}, 0.0)
