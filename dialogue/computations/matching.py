"""Which computations typed words or settings lead to, with their arguments filled.  Needs no database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dialogue.computations.mentions import Mentions, mentions_of
from dialogue.computations.table import TABLE, Computation
from dialogue.computations.words import SEARCHED
from knowledge.embedding.minilm import embed
from proposals.agents.workbench import Workbench

#: What `evaluation.fit_palette` learned from how people ask for each computation.
WEIGHTS = Path(__file__).with_name("asked.npz")
#: Computations that words alone lead to, and how probable one must be to be shown.
MOST, LEAST = 5, 0.02
#: Where a text is cut into what it asks, and the characters of a clause that asks something.
_CLAUSES, CLAUSE = re.compile(r"(?<=[.?!;])\s+|, |: "), 12
#: Configurations of a text that are offered.
CONFIGURATIONS = 3
#: Computations of a configuration.
OF_SETTINGS = ("price", "fits", "why_not", "around")
_BY_KEY = {item.key: item for item in TABLE}


@dataclass(frozen=True)
class Match:
    """A computation with its arguments.  problem: a sentence where it cannot be had."""

    computation: Computation
    arguments: dict[str, Any]
    problem: str = ""


def matches(bench: Workbench, text: str, before: Sequence[str] = ()) -> list[Match]:
    """Return the computations that a text leads to, the most probable first; a configuration in it always leads to one
    of it.  before: what was asked earlier in the conversation."""
    named = mentions_of(bench, text, before)
    shares = probabilities(text, named)
    leading = max(OF_SETTINGS, key=lambda key: shares[key])  # of a configuration one question, which names the others
    asked = [Match(_BY_KEY[leading], dict(each.arguments), each.problem) for each in named.configurations]
    made = asked[:CONFIGURATIONS] or [Match(_BY_KEY[leading], filled(_BY_KEY[leading], named))]
    others = [Match(of, filled(of, named)) for of in TABLE if shares[of.key] >= LEAST and of.key not in OF_SETTINGS]
    others.sort(key=lambda match: -shares[match.computation.key])
    kept = made if asked or shares[leading] >= LEAST else []
    return sorted([*kept, *others[: MOST - len(kept)]], key=lambda match: -shares[match.computation.key])


def probabilities(text: str, named: Mentions) -> dict[str, float]:
    """Return by computation how probable it is that a text asks for it, the mean over it and its clauses."""
    clauses = [part for part in _CLAUSES.split(text[:SEARCHED].strip()) if len(part) > CLAUSE]
    keys, weights = _weights()
    scores = np.exp(features([text[:SEARCHED], *clauses], [named.signals] * (len(clauses) + 1)) @ weights)
    shares = (scores / scores.sum(axis=1, keepdims=True)).mean(axis=0)
    known = dict(zip(keys, map(float, shares), strict=True))
    return {item.key: known.get(item.key, 0.0) for item in TABLE}


def features(texts: Sequence[str], signals: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    """Return MiniLM's vectors of texts, their signals and a 1 behind each, (texts, 384 + signals + 1)."""
    return np.hstack([embed(texts), np.asarray(signals, np.float32), np.ones((len(texts), 1), np.float32)])


@cache
def _weights() -> tuple[list[str], NDArray[np.float32]]:
    with np.load(WEIGHTS) as file:
        return [str(key) for key in file["keys"]], file["weights"].astype(np.float32)


def filled(of: Computation, named: Mentions) -> dict[str, Any]:
    """Return the arguments of a computation that a text names."""
    if of.about == "proposal":
        first, *others = named.proposals or [1]
        return {"proposal": first, **({"other": others[0]} if of.key == "compare" and others else {})}
    if of.about == "finding":
        return {"finding": next(iter(named.findings), named.about or 1)}
    if of.key in OF_SETTINGS:
        return dict(named.proposed or named.earlier)
    if of.key == "spending":
        return dict(named.amounts)
    if of.key == "other_chip":
        settings = [each.settings for each in named.configurations[:1]]
        there: dict[str, Any] = {"chip": next(iter(named.chips), ""), "chips": list(named.counts[:1])}
        there |= {"mesh": settings[0].sizes, "changes": dict(settings[0].changes)} if settings else {}
        return {key: value for key, value in there.items() if value}
    fields = {
        "axis": ("axis", named.axes), "op": ("op", named.ops or [named.likely_op]), "ops": ("words", named.kinds),
        "vary": ("key", named.keys), "figure": ("number", named.figures),
    }  # fmt: skip
    name, values = fields.get(of.key, ("", ()))
    return {name: values[0]} if values and values[0] else {}
