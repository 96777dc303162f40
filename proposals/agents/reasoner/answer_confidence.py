"""How likely an answer is to be right, by what is known before and after computing it.

Five signs that need no understanding: how near the capability was, numbers and words of the message that neither the
capability nor the answer speaks of, whether something is computed from what is named (a what-if, a cost) rather than
explained, whether it asks for a reason.  A logistic regression over graded answers (`evaluation.fit_certainty`) makes
of them a probability; what is not likely enough is offered instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import cache
from math import exp, log, log1p
from pathlib import Path

from formatting.numbers import whole_number
from proposals.agents.capabilities import Capability
from proposals.agents.reasoner import intent

WEIGHTS = Path(__file__).with_name("certainty.json")
SIGNS = ("constant", "nearness", "numbers", "words", "reason", "computes")
#: Areas and capabilities that compute something from what is named.
COMPUTED = frozenset(("pricing", "parallelism", "other_chips", "cost", "fits", "largest_batch"))
_NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?:\s?(k)\b)?", re.IGNORECASE)
#: Figures that differ by less are the same, rounded.
ROUNDED = 0.006
_REASON = re.compile(
    r"\b(?:why|how come|contradict\w*|wrong|can'?t|cannot|explain|reason|mean|means|really|prove|where does|"
    r"where did|invent\w*|honest\w*|both)\b",
    re.IGNORECASE,
)
_PLAIN = intent.tokens(
    "the a an of to in on at for and or but is are was were be been it its this that these those i we you he they my "
    "our your me us do does did can could would should will may might what which how when where who not no so if then "
    "with as by from than there here about just only also too very have has had get got give tell please pls some any "
    "all more less most least one same ok okay much many want say said let like now go thanks thank hi hello well"
)


def signs(text: str, answered: Collection[Capability], answer: str, chance: float) -> list[float]:
    """text: the message.  answered: capabilities that answered.  chance: of the least likely of them."""
    words = {word for word in content(text) if len(word) > 2 and whole_number(word[0]) is None}
    spoken = intent.tokens(answer) | intent.words_of({item.key for item in answered})
    lost = sum(intent.rarity(word) for word in words - spoken)
    p = min(max(chance, 0.02), 0.98)
    return [
        1.0,
        log(p / (1 - p)),
        log1p(len(unanswered_numbers(text, answer))),
        log1p(lost),
        float(bool(_REASON.search(text))),
        float(any({item.area, item.key} & COMPUTED for item in answered)),
    ]


def content(text: str) -> frozenset[str]:
    """Its words but for those that any sentence has."""
    return intent.tokens(text) - _PLAIN


def is_example(text: str, key: str) -> bool:
    """Whether a message asks what the capability names as its own question: at least half of the words of both are the
    same, which no question of the graded ones has in common with an example."""
    said = content(text)
    every = (content(each) for each in intent.questions_of(key))
    return any(2 * len(said & words) >= len(said | words) for words in every if said or words)


def unanswered_numbers(text: str, answer: str) -> list[float]:
    """Numbers of the message that the answer does not name."""
    named = [each for match in _NUMBER.finditer(answer) for each in _values(match)]
    values = [_values(match) for match in _NUMBER.finditer(text)]
    return [each[0] for each in values if not any(abs(x - y) <= ROUNDED * abs(x) for x in each for y in named)]


def _values(match: re.Match[str]) -> Sequence[float]:
    value = float(match[1].replace(",", "").rstrip("."))
    return (value * 1000, value * 1024) if match[2] else (value,)


@cache
def weights() -> tuple[tuple[float, ...], float]:
    """One per sign, and the least probability at which an answer is given."""
    data = json.loads(WEIGHTS.read_text("utf-8"))
    return tuple(float(data["weights"][name]) for name in SIGNS), float(data["least"])


def probability(features: Sequence[float]) -> float:
    return 1 / (1 + exp(-sum(x * w for x, w in zip(features, weights()[0], strict=True))))
