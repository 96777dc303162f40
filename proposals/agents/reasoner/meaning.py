"""What a clause asks by its meaning, where the rules of `intents` fit nothing, or something else by a single word.

A softmax over the vector of the built-in sentence embedder and the name of the rule that fitted, learnt by
`evaluation.fit_meaning` from the examples in evaluation/meaning.toml.  Without the embedder the rules stand alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from knowledge.embedding.base import EmbeddingError
from knowledge.embedding.minilm import MiniLM

logger = logging.getLogger(__name__)

WEIGHTS = Path(__file__).with_name("meaning.npz")
#: A clause that asks nothing that can be answered here.
NOTHING = "none"
#: Statements, by the key of `Constraints` that they set.
TELLS = "tell:"
#: Intents that are answered alike stand as one; small talk asks nothing.
ALIKE = {
    "pressure": "hold", "op": "ops", "injection": "act",
    "greeting": NOTHING, "thanks": NOTHING, "bye": NOTHING, "yes": NOTHING, "no": NOTHING,
}  # fmt: skip
#: Rules that look at more than the words can mean, or guard: they stand whatever the meaning seems to be.
FIRM = frozenset({"injection", "act", "greeting", "thanks", "bye", "yes", "no", "what_if", "op"})
#: Least probability where no rule fits, where one fits that names something else, and to hold something fast.  Chosen
#: by cross-validation on the examples: a wrong answer was taken to be as bad as a right one is good.
LEAST, OVER_A_RULE, TO_HOLD = 0.45, 0.35, 0.5
#: A question that was not read may be offered as one of so many, each at least so probable.
OFFERED, WORTH_OFFERING = 3, 0.1
#: How much the rule counts beside a vector of unit length.
RULE_WEIGHT = 0.3


@dataclass(frozen=True)
class Read:
    """intent: empty where nothing is asked, else a name of `intents.RULES` or `tell:` and a constraint.  guessed: by
    the meaning, against the rules or without them."""

    intent: str
    guessed: bool = False


@dataclass(frozen=True)
class Weights:
    """matrix: (vector and rules, intents); bias: (intents,); rules, intents: the names of rows and columns."""

    matrix: NDArray[np.float32]
    bias: NDArray[np.float32]
    rules: tuple[str, ...]
    intents: tuple[str, ...]


def read(rule: str, clause: str) -> Read:
    """What a clause asks, given the rule that fits it (empty: none).  clause: as the user wrote it."""
    return Read(rule) if rule in FIRM else decide(rule, clause, probabilities(rule, clause))


def decide(rule: str, clause: str, found: Mapping[str, float]) -> Read:
    """The same, from the probabilities of the intents."""
    if rule in FIRM or not found:
        return Read(rule)
    intent = max(found, key=lambda name: found[name])
    sure = found[intent]
    if intent == ALIKE.get(rule, rule):
        return Read(rule)
    least = TO_HOLD if intent.startswith(TELLS) or (rule and intent == NOTHING) else OVER_A_RULE if rule else LEAST
    if sure < least or (intent.startswith(TELLS) and clause.rstrip().endswith("?")):
        return Read(rule)
    return Read("" if intent == NOTHING else intent, True)


def perhaps(clause: str) -> tuple[str, ...]:
    """What a clause that was not read may ask, the likeliest first; nothing where it most likely asks nothing."""
    found = sorted(probabilities("", clause).items(), key=lambda item: -item[1])
    if not found or found[0][0] == NOTHING:
        return ()
    likely = [name for name, chance in found if chance >= WORTH_OFFERING]
    return tuple(name for name in likely if name not in FIRM | {NOTHING} and not name.startswith(TELLS))[:OFFERED]


@lru_cache(maxsize=2048)
def probabilities(rule: str, clause: str) -> Mapping[str, float]:
    """Of every intent that examples are of; empty without the embedder."""
    try:
        vector = _embedder().embed([clause])[0]
    except EmbeddingError:
        logger.warning("what is asked is read by rules alone", exc_info=True)
        return {}
    weights = shipped()
    features = np.concatenate([vector, ruled(rule, weights.rules)])
    chances = softmax(features @ weights.matrix + weights.bias)
    return dict(zip(weights.intents, chances.tolist(), strict=True))


def ruled(rule: str, rules: tuple[str, ...]) -> NDArray[np.float32]:
    """The rule as features."""
    return RULE_WEIGHT * np.array([name == ALIKE.get(rule, rule) for name in rules], np.float32)


def warm() -> None:
    """Load the embedder, and compile it for clauses of usual lengths, before somebody waits for it."""
    for words in (3, 20, 40):
        probabilities("", "runs like this one " * (words // 3))


@cache
def shipped() -> Weights:
    with np.load(WEIGHTS) as file:
        return Weights(file["matrix"], file["bias"], tuple(file["rules"].tolist()), tuple(file["intents"].tolist()))


@cache
def _embedder() -> MiniLM:
    return MiniLM()
