"""Round numbers that bound one that is shown: `under 50 % (42 %)`, `more than 10 GB are free, 12.3 GB`, `not 20 ms but
15.8 ms`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from proposals.agents.grounding_claims import Number, Sentence

_ABOVE = (
    r"(?:at most|(?:no|not) (?:more|longer|higher|larger) than|under|below|(?:less|fewer|lower|smaller|shorter) than|"
    r"up to|within|short of)"
)
_BELOW = (
    r"(?:at least|(?:no|not) (?:less|fewer|lower) than|over|above|(?:more|longer|higher|larger|greater) than|beyond|"
    r"exceed(?:s|ing)?)"
)
_NOT = r"\bnot"
_BEFORE = {
    sign: re.compile(rf"(?:\b{words}\s+|{mark}\s?)(?:(?:the|an?|about|some|around|one)\s+|[~≈*`]\s?)*$", re.IGNORECASE)
    for sign, words, mark in (("above", _ABOVE, "[<≤]=?"), ("below", _BELOW, "[>≥]=?"), ("not", _NOT, "≠"))
}
#: The longest wording of a bound, in characters: a sentence may be as long as an answer.
_MOST_BEFORE = 80
#: A bound has few digits, and is near to what it bounds.
_MOST_DIGITS, _NEAR = 2, 2.0


def bounding(sentence: Sentence, number: Number) -> str:
    """How the words before a number make a bound of it (above, below, not); empty where they do not."""
    before = sentence.text[max(0, number.start - _MOST_BEFORE) : number.start]
    return next((sign for sign, pattern in _BEFORE.items() if pattern.search(before)), "")


def is_round(number: Number) -> bool:
    digits = re.sub(r"[^\d]", "", re.split(r"[eE]", number.text)[0]).strip("0")
    return len(digits) <= _MOST_DIGITS


def bounds(sentence: Sentence, number: Number, shown: Iterable[Number]) -> bool:
    """Whether a number is a true bound, in round digits, of one that is shown."""
    sign = bounding(sentence, number)
    if not sign or not is_round(number) or not number.value:
        return False
    for other in shown:
        if other.kind != number.kind or not 1 / _NEAR <= other.value / number.value <= _NEAR:
            continue
        if (
            (sign == "above" and other.value <= number.value)
            or (sign == "below" and other.value >= number.value)
            or (sign == "not" and abs(other.value - number.value) > number.half)
        ):
            return True
    return False
