"""What a proposal may cite: passages of the knowledge base by tag.  Precedents cite themselves (`precedents`).

Source: knowledge/passages (our words; each names its work and section).  Pages open a passage in place by its id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import log

from knowledge.passage_file import ShippedPassage, read_all
from proposals.plan import Citation

BOOK = "How to Scale Your Model"
#: Of a passage's weight, what is left where it helps against other bottlenecks than the verdict.
OTHER_BOTTLENECK = 0.5
#: Weight of the verdict beside a tag of what the proposal does: many passages bear on it.
VERDICT = 0.5
#: Letters of a passage that a citation carries along; the page shows it whole.
EXCERPT = 320
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Library:
    """All passages, and how much each tag tells: the rarer the more."""

    passages: tuple[ShippedPassage, ...]
    weights: Mapping[str, float]


@cache
def library() -> Library:
    passages = tuple(passage for file in read_all() for passage in file.passages)
    counts = Counter(tag for passage in passages for tag in passage.tags)
    return Library(passages, {tag: log(1.0 + len(passages) / count) for tag, count in counts.items()})


def cite(tags: Iterable[str], kind: str, verdict: str, experts: bool, most: int = 3) -> tuple[Citation, ...]:
    """The passages that share most with a proposal, in the order of their files where they tie.

    tags: of what it does and of the findings it answers.  kind: `tpu` or `gpu`; passages on the other are left out, as
    are those on experts where there are none.  verdict: the bottleneck that it answers.
    """
    found, wanted = library(), frozenset(tags)
    scored = []
    for number, passage in enumerate(found.passages):
        own = frozenset(passage.tags)
        if not {kind, "any"} & set(passage.hardware) or ("expert" in own and not experts):
            continue
        shared = sum(found.weights[tag] for tag in wanted & own)
        shared += VERDICT * found.weights.get(verdict, 0.0) * (verdict in own)
        against = 1.0 if not passage.bottlenecks or verdict in passage.bottlenecks else OTHER_BOTTLENECK
        scored.append((shared * against / len(own) ** 0.5, -number, passage))
    best = sorted((item for item in scored if item[0] > 0), key=lambda item: item[:2], reverse=True)[:most]
    return tuple(citation(passage) for _, _, passage in best)


def citation(passage: ShippedPassage) -> Citation:
    """`book` with its section, or `knowledge` with the work that the passage rests on."""
    if passage.source.startswith(BOOK):
        return Citation("book", passage.section, passage.title, _excerpt(passage.text), passage.url, passage.id)
    work = re.split(r"[,;:]", passage.source)[0]
    return Citation("knowledge", work, passage.title, _excerpt(passage.text), passage.url, passage.id)


def _excerpt(text: str) -> str:
    """The first sentences, as far as they fit."""
    found = ""
    for sentence in _SENTENCE.split(" ".join(text.split())):
        if found and len(found) + len(sentence) > EXCERPT:
            break
        found = f"{found} {sentence}".strip()
    return found
