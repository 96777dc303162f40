"""The field's abbreviations and synonyms, `synonyms.toml`: what a query says in other words than the passages do."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("synonyms.toml")
#: Words in quotes are matched literally, and excluded words have no synonyms.
_LITERAL = re.compile(r'"[^"]*"?|(?<!\S)-\S+')


@dataclass(frozen=True)
class Term:
    """means: phrases of the passages; pattern: matches any way in which the field writes the same."""

    means: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def terms() -> tuple[Term, ...]:
    rows = tomllib.loads(FILE.read_text("utf-8"))["term"]
    return tuple(Term(tuple(row["means"]), _pattern(row["written"])) for row in rows)


def other_words(query: str) -> tuple[str, ...]:
    """Phrases for the query's terms as passages have them, in the order of the table; none where it uses no term."""
    free = _LITERAL.sub(" ", query)
    return tuple(dict.fromkeys(phrase for term in terms() if term.pattern.search(free) for phrase in term.means))


def _pattern(written: list[str]) -> re.Pattern[str]:
    """Whole words in any case, also with a plural s or a number behind them; space, hyphen and underscore are alike."""
    spelled = "|".join(r"[-_ ]?".join(map(re.escape, re.split(r"[-_ ]", each))) for each in written)
    return re.compile(rf"(?<![\w-])(?:{spelled})s?(?=[-=_ ]?\d|(?![\w]))", re.IGNORECASE)
