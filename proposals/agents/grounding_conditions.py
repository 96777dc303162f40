"""Whether a text calls a number measured or predicted, or sets a condition on what a measurement will say: `if it
measures above 60 GB`, `should the profile show more than 5 %`.

Who writes a condition claims no measurement, and chooses its round threshold.
"""

from __future__ import annotations

import re

from proposals.agents.grounding_bounds import bounding, is_round
from proposals.agents.grounding_claims import Number, Sentence

_SAYS_MEASURED = re.compile(r"\bmeasured\b|\brecorded\b", re.IGNORECASE)
#: Whole words: neither *run* nor *memory-bound* nor the axis *model* says that something is predicted.
_SAYS_PREDICTED = re.compile(
    r"\b(?:predict|estimat|expect|forecast|project(?:ed|ion)|simulat|hypothe|would\b|priced|(?:comput|calculat|modell?)ed\b|modell?ing\b|model['’]s|"
    r"(?:performance|cost|memory) model\b|un(?:measured|tested|tried|confirmed|proven)\b|"
    r"(?:not|never)\s+(?:\w+\s+)?measured)|(?<![\w-])bounds?\b",
    re.IGNORECASE,
)
#: What opens a condition; `should` does where it begins a clause.
_IF = re.compile(
    r"\b(?:if|unless|in case|provided|assuming)\b|(?:^|[,;:(–—]|\b(?:and|but|or))\s*\bshould\b", re.IGNORECASE
)
#: These open one before a verb in the present: `when it shows`, and not `when it showed`.
_ONCE = re.compile(r"\b(?:once|when(?:ever)?|until|as soon as)\b", re.IGNORECASE)
_PRESENT = re.compile(r"\b(?:is|are|stays?|takes?|exceeds?|reaches|reads?|measures?|shows?|reports?)\b", re.IGNORECASE)
#: How a text speaks of measuring.
_MEASURING = re.compile(
    r"\b(?:measur\w+|(?:re)?profil\w+|trac(?:es?|ed|ing)|trials?|record(?:s|ed|ings?)|shows?|shown|observed?|observes|"
    r"reports?|reported)\b",
    re.IGNORECASE,
)
#: That it has been measured occurs in a condition as well: `if it takes 20 s as measured`, `if the measured 20 s …`.
_HAS_BEEN = re.compile(
    r"\b(?:as|was|were|has been|have been)\s+(?:\w+\s+)?(?:measured|recorded)\b|\b(?:measured|recorded)\s+[~≈`*]*$",
    re.IGNORECASE,
)
#: Where a condition ends.
_ENDS = re.compile(r",(?!\d)|[;:()]|[.!?]\s|\bthen\b|\s[–—]\s")
#: `if, after the change, it measures`
_ASIDE = re.compile(r"^\s*,[^,;:.]*,")
#: `a measured peak above 60 GB would …`
_WOULD = re.compile(r"[^,;:.]*?\b(?:would|could|might)\b", re.IGNORECASE)
_JOINS = re.compile(r"\b(?:and|but|which|that)\b", re.IGNORECASE)
_OR_MORE = re.compile(r"\s*(?:or|and)\s+(?:more|less|above|below|over|under|higher|lower|longer|shorter|up)\b")


def says_measured(text: str) -> bool:
    return bool(_SAYS_MEASURED.search(text))


def says_predicted(text: str) -> bool:
    """Whether a text says of something that it is predicted, or that it was not measured."""
    return bool(_SAYS_PREDICTED.search(text))


def is_conditional(sentence: Sentence, number: Number) -> bool:
    """Whether a number is part of a condition on a measurement."""
    text, at = sentence.text, number.start
    after = text[at + len(number.text) :]
    end = _ENDS.search(after)
    within = after[: end.start()] if end else after
    for pattern in (_IF, _ONCE):
        for opener in pattern.finditer(text, 0, at):
            clause = _ASIDE.sub("", text[opener.end() : at])
            if _ENDS.search(clause) or not _MEASURING.search(clause):
                continue
            if _HAS_BEEN.search(clause) or _HAS_BEEN.search(within):
                continue
            if pattern is _IF or _PRESENT.search(clause):
                return True
    clause = text[max((match.end() for match in _ENDS.finditer(text, 0, at)), default=0) : at]
    goes_on = _WOULD.match(after) if bounding(sentence, number) else None
    return bool(goes_on and _MEASURING.search(clause) and not _JOINS.search(clause + goes_on[0]))


def is_threshold(sentence: Sentence, number: Number) -> bool:
    """Whether a number is one that the writer chose: a round one that a future measurement may pass."""
    behind = sentence.text[number.start + len(number.text) :]
    passed = bounding(sentence, number) in ("above", "below") or _OR_MORE.match(behind)
    return bool(passed) and is_round(number) and is_conditional(sentence, number)
