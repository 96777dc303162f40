"""The glossary: one data file behind tooltips, the formulas of KPIs and docs/glossary.md.  Pure."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("glossary.toml")


@dataclass(frozen=True)
class Term:
    """A term of the field.  key: what a page asks for it by, or empty.  avoid: what no text may say instead."""

    term: str
    meaning: str
    key: str = ""
    formula: str = ""
    avoid: tuple[str, ...] = ()

    def avoided(self, text: str) -> str | None:
        """The first phrase of `text` that should have been this term; None where there is none."""
        hit = next((match for phrase in self.avoid if (match := re.search(phrase, text, re.IGNORECASE))), None)
        return hit[0] if hit else None


@cache
def load() -> tuple[Term, ...]:
    rows = tomllib.loads(FILE.read_text("utf-8"))["term"]
    return tuple(Term(**{**row, "avoid": tuple(row.get("avoid", ()))}) for row in rows)


@cache
def style() -> tuple[Term, ...]:
    """Phrases that are no terms: plain verbs, each with the phrases that it replaces."""
    rows = tomllib.loads(FILE.read_text("utf-8"))["style"]
    return tuple(Term(row["say"], "", avoid=tuple(row["avoid"])) for row in rows)


@cache
def by_key() -> dict[str, Term]:
    return {term.key: term for term in load() if term.key}


def page() -> str:
    """docs/glossary.md."""
    lines = [
        "# Glossary",
        "",
        "The terms of pages, findings, proposals and docs, as XProf, MaxText, Megatron and *How to Scale Your Model*",
        "use them. Generated from `experiments/glossary.toml` by `make glossary`; tooltips come from the same file.",
        "",
        "| Term | Meaning | Computed as |",
        "|---|---|---|",
        *(f"| **{term.term}** | {term.meaning} | {term.formula} |" for term in sorted(load(), key=_order)),
    ]
    return "\n".join(lines) + "\n"


def _order(term: Term) -> str:
    return term.term.lower()
