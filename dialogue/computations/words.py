"""Words of a typed text, and how much of them other texts hold."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of a text that are looked at.
SEARCHED = 400
#: Words that say little by themselves.
COMMON = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has", "have", "how", "i",
    "if", "in", "is", "it", "me", "my", "of", "on", "or", "our", "so", "that", "the", "them", "then", "there",
    "this", "to", "up", "us", "was", "we", "what", "when", "where", "which", "who", "why", "will", "with", "would",
    "you", "your", "run",
))  # fmt: skip
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9_.-]|\+(?=[a-z]))*")


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
