"""Which computations typed words or settings lead to, with their arguments filled.  Needs no database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.tools import ToolError
from dialogue.computations.table import TABLE, Computation, OfSpending
from perfmodel.chips import load_chips
from perfmodel.workload import REMAT, SHARDING
from proposals.agents.settings import SETTING_WORDS, Settings, axis_of, parse
from proposals.agents.tools.look import kpi_name
from proposals.agents.tools.shared import Configuration, arguments_of, as_tool_error
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, keeps

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
#: Between configurations.
_OR = re.compile(r"\s+(?:or|vs\.?|versus)\s+|\s*;\s*", re.IGNORECASE)
#: A proposal or finding by its number.
_ORDINALS = {
    "proposal": re.compile(r"(?:\bprop(?:osal)?s?\.?\s*(?:#|nr\.?|number)?|#|\bnr\.?)\s*([1-9])\b", re.IGNORECASE),
    "finding": re.compile(r"\bfindings?,?\s*(?:#|nr\.?|number)?\s*([1-9]\d?)\b", re.IGNORECASE),
}
#: What a training run takes: tokens, and money for a chip and hour.
_AMOUNTS = {
    "tokens": re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)(?:illion)?\s*tok(?:ens?)?\b(?!\s*(?:/|per))", re.IGNORECASE),
    "price_per_chip_hour": re.compile(r"(\d+(?:\.\d+)?)\s*()(?:\$|usd\b|eur\b|€)", re.IGNORECASE),
}
_POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
#: Ops, longest first, whose kind a text may name.
KINDS = 40
_BY_KEY = {item.key: item for item in TABLE}
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True)
class Match:
    """A computation with its arguments.  problem: a sentence where it cannot be had."""

    computation: Computation
    arguments: dict[str, Any]
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
    asked = [settings for part in _parts(text, bench) if (settings := parse(part, bench.config))]
    found = [match for settings in asked for match in _of_settings(bench, settings, is_one=len(asked) == 1)]
    words = words_of(" ".join(word for settings in asked for word in settings.rest) if found else text)
    found += _variants(bench, words)
    scored = []
    for place, of in enumerate(TABLE):
        if any(match.computation is of for match in found):  # it is there with more of its arguments
            continue
        given, named = _filled(of, words, bench, text)
        points = score(words, (of.title, 3.0), (of.words, 2.0)) + named
        if points >= _LEAST:
            scored.append((-points, place, Match(of, given)))
    return found + [match for _, _, match in sorted(scored, key=lambda item: item[:2])[:MOST]]


def _parts(text: str, bench: Workbench) -> list[str]:
    """Return the configurations of a text that names several, each with a mesh; else the text."""
    parts = _OR.split(text[:SEARCHED])
    has_meshes = len(parts) > 1 and all((found := parse(part, bench.config)).ici or found.dcn for part in parts)
    return parts if has_meshes else [text]


def _of_settings(bench: Workbench, settings: Settings, is_one: bool) -> list[Match]:
    sizes = {**settings.ici, **{f"dcn.{axis}": size for axis, size in settings.dcn.items()}}
    try:
        with as_tool_error():
            of = Configuration(mesh=sizes, changes=dict(settings.changes)).candidate(bench.config)
    except ToolError as error:
        return [Match(_BY_KEY["price"], {}, problem=str(error))]
    if not sizes and keeps(bench.config, of):  # settings as they are now: spoken of, not asked for
        return []
    given = arguments_of(bench.config, of)
    keys = ("price", "fits", "why_not", "around") if is_one else ("price",)
    return [Match(_BY_KEY[key], given) for key in keys]


def _variants(bench: Workbench, words: Sequence[str]) -> list[Match]:
    """The prices of the other values of a setting that is named alone."""
    training, now = bench.config.training, bench.config.mesh.to_json()
    for key, values in (("remat", REMAT), ("weight_sharding", SHARDING)):
        if [SETTING_WORDS.get(word) for word in words] == [key]:
            options = [Candidate(now, {key: value}) for value in values if value != getattr(training, key)]
            return [Match(_BY_KEY["price"], arguments_of(bench.config, of)) for of in options]
    return []


def _filled(of: Computation, words: Sequence[str], bench: Workbench, text: str) -> tuple[dict[str, Any], float]:
    """The arguments of a computation that the words name, and what naming them adds to its score."""
    for kind, named_by in _ORDINALS.items():
        if kind in of.arguments.model_fields and of.about == kind:
            place = named_by.search(text)
            return {kind: int(place[1]) if place else 1}, float(bool(place))
    if of.arguments is OfSpending:
        amounts = {key: amount for key, pattern in _AMOUNTS.items() if (amount := _amount(pattern, text))}
        return amounts, 2.0 * bool(amounts)
    mesh, said = bench.config.mesh, " ".join(words)
    ops = [op.name for op in bench.diagnosis.ops if len(op.name) > 3 and op.name.lower() in text.lower()]
    kinds = [kind for name in (op.name for op in bench.diagnosis.ops[:KINDS]) if _is_in(kind := _base(name), text)]
    axes = {axis for axis, _ in (*mesh.ici, *mesh.dcn)} | {"dcn"}
    figures = {key: kpi_name(key) for key in bench.diagnosis.kpis}
    named: dict[str, tuple[str, float, list[str]]] = {
        "axis": ("axis", 1.0, [found for word in words if (found := axis_of(mesh, word) or word) in axes]),
        "other_chip": ("chip", 2.0, [w for w in words if w in load_chips() and w != bench.config.hardware.chip]),
        "op": ("op", 3.0, sorted(ops, key=len, reverse=True)),
        "ops": ("words", 2.0, kinds),
        "vary": ("key", 1.0, [SETTING_WORDS[word] for word in words if word in SETTING_WORDS]),
        "figure": ("number", 0.5, [key for key, name in figures.items() if name.lower() in said]),
    }
    field, points, values = named.get(of.key, ("", 0.0, []))
    if of.key == "op" and not values:  # of no op in particular
        return {}, -1.0
    return ({field: values[0]}, points) if values else ({}, 0.0)


def _amount(pattern: re.Pattern[str], text: str) -> float:
    """Return the number that a pattern finds, with its power of a thousand; 0 where there is none."""
    found = pattern.search(text)
    return float(found[1]) * _POWERS[(found[2] or "").upper()] if found else 0.0


def _base(name: str) -> str:
    """Return the kind of an op by its name: `dynamic-update-slice.33` is a dynamic-update-slice."""
    return re.sub(r"[.\d]+$", "", name).lower()


def _is_in(kind: str, text: str) -> bool:
    return len(kind) > 5 and kind in text.lower()
