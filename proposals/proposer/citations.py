"""What a proposal may cite: principles of the book by tag, precedents, the profile's own findings.

Source: principles.toml (our words, the book's sections).  Precedents cite themselves (`precedents`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from proposals.plan import Citation

BOOK = "https://jax-ml.github.io/scaling-book/"
_PAGES = {
    "1": "roofline/",
    "2": "tpus/",
    "3": "sharding/",
    "4": "transformers/",
    "5": "training/",
    "6": "applied-training/",
    "9": "profiling/",
}


@dataclass(frozen=True)
class Principle:
    """One principle of the knowledge base.  section: `chapter.section` of the book."""

    id: str
    section: str
    title: str
    statement: str
    tags: frozenset[str]

    def citation(self) -> Citation:
        url = BOOK + _PAGES.get(self.section.split(".")[0], "")
        return Citation("book", self.section, self.title, self.statement, url, self.id)


@cache
def principles() -> tuple[Principle, ...]:
    text = files("proposals.proposer").joinpath("principles.toml").read_text("utf-8")
    return tuple(
        Principle(row["id"], row["section"], row["title"], row["statement"], frozenset(row["tags"]))
        for row in tomllib.loads(text)["principle"]
    )


def cite(tags: Iterable[str], most: int = 3) -> tuple[Citation, ...]:
    """The principles that share most tags with a proposal, in the book's order where they tie."""
    wanted = frozenset(tags)
    scored = [(len(p.tags & wanted) / len(p.tags) ** 0.5, -n, p) for n, p in enumerate(principles())]
    best = sorted((s for s in scored if s[0] > 0), key=lambda s: s[:2], reverse=True)[:most]
    return tuple(p.citation() for _, _, p in best)
