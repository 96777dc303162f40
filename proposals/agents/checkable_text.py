"""What of an answer no check can read: numbers that are not written in figures, and other languages than English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_WORD = (
    r"(?:five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million|billion)"
)
_ANY = rf"(?:one|two|three|four|zero|{_WORD})"
#: `ninety-three per cent`, `nine point four`, `five times faster`; one to four may be counted in words.
_IN_WORDS = re.compile(
    rf"\b{_ANY}\s+point\s+{_ANY}\b|\b{_WORD}(?:[\s-]+(?:and\s+)?{_ANY})*[\s-]+"
    r"(?:per\s?cent|percent(?:age)?|times|fold|(?:milli|micro)?seconds?|(?:giga|mega|tera)bytes?)\b",
    re.IGNORECASE,
)
#: Words without which nobody writes eight words of English.
_ENGLISH = re.compile(
    r"\b(?:the|a|an|is|are|was|of|to|and|in|it|its|on|for|no|not|at|by|with|as|this|that|i|be|or|so|which|than|from)\b",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[^\W\d_]+")
_LEAST_WORDS = 8


def unreadable(text: str) -> Iterator[str]:
    """A complaint for each thing that could not be held against the tool results."""
    for match in _IN_WORDS.finditer(text):
        yield f"`{match[0][:60]}` is a number in words; write it in digits, so that it can be checked."
    odd = sorted({sign for sign in text if not sign.isascii() and _is_other_figure(sign)})
    if odd:
        yield f"`{' '.join(odd[:5])}` are not the digits 0 to 9; write numbers with these, so that they can be checked."
    words = _LETTERS.findall(text)
    foreign = sum(len(word) for word in words if not _is_latin(word[0]))
    if foreign > 0.2 * sum(map(len, words)) or (len(words) >= _LEAST_WORDS and not _ENGLISH.search(text)):
        yield "The answer is not in English, the only language in which it can be checked; write it in English."


def _is_other_figure(sign: str) -> bool:
    if unicodedata.category(sign) == "Nd":
        return True
    # m² and ½ are read; circled, Roman and bracketed figures are not.
    return unicodedata.category(sign) in ("No", "Nl") and not unicodedata.decomposition(sign).startswith(
        ("<super>", "<sub>", "<fraction>")
    )


def _is_latin(sign: str) -> bool:
    return sign.isascii() or unicodedata.name(sign, "").startswith(("LATIN", "GREEK", "MICRO"))
