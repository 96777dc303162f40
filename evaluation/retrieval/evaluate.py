"""How well retrieval answers the labelled questions: `make accuracy` writes docs/knowledge.md.

A question is answered when one of its expected passages is among the first five (recall@5); MRR is the mean of one over
the rank of the first expected one among the first fifty, 0 where there is none.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: By the authors of the passages.
QUESTIONS = Path(__file__).with_name("questions.toml")
#: By somebody who had read none.
BLIND_QUESTIONS = Path(__file__).with_name("blind_questions.toml")
#: By a third person, written after the retrieval that they measure; nothing was chosen by them.
FRESH_QUERIES = Path(__file__).with_name("fresh_queries.json")
DOCUMENT = Path(__file__).parents[2] / "docs" / "knowledge.md"
BEGIN, END = "<!-- measured by evaluation/retrieval/evaluate.py -->", "<!-- end -->"
MODES: tuple[Literal["vector", "text", "fused"], ...] = ("vector", "text", "fused")


@dataclass(frozen=True)
class Measured:
    """ranks: of the first expected passage for each question, None where it is not among the first fifty."""

    ranks: tuple[int | None, ...]

    def recall(self, k: int = 5) -> float:
        return sum(rank is not None and rank <= k for rank in self.ranks) / len(self.ranks)

    @property
    def mrr(self) -> float:
        return sum(1 / rank for rank in self.ranks if rank is not None) / len(self.ranks)


def questions(file: Path = QUESTIONS, *, later: bool = False) -> list[tuple[str, frozenset[str]]]:
    """Questions that a passage answers, with the keys of those that do.

    later: only those whose passage was written by somebody who knew the question, which the others leave out.
    """
    rows = tomllib.loads(file.read_text("utf-8"))["question"]
    return [
        (row["question"], frozenset(row["expected"]))
        for row in rows
        if row["expected"] and row.get("later", False) is later
    ]


def fresh_queries(file: Path = FRESH_QUERIES) -> list[tuple[str, str, frozenset[str]]]:
    """(id, query, keys of the passages that answer it) of the queries that a passage answers."""
    rows = json.loads(file.read_text("utf-8"))
    return [(row["id"], row["query"], frozenset(row["answers"])) for row in rows if row["answers"]]


def is_held_out(question: str) -> bool:
    """Whether a blind question, or the id of a fresh query, is of the half that nobody looks at, by its hash."""
    return int(hashlib.sha256(question.encode()).hexdigest(), 16) % 2 == 1


def first_rank(keys: Sequence[str], expected: frozenset[str]) -> int | None:
    return next((rank for rank, key in enumerate(keys, 1) if key in expected), None)


def measure(asked: Sequence[tuple[str, frozenset[str]]]) -> dict[str, Measured]:
    """Of the passages in the database, which must have their vectors."""
    from knowledge.services.search import search

    return {
        mode: Measured(
            tuple(
                first_rank([found.passage.key for found in search(None, question, k=50, mode=mode).found], expected)
                for question, expected in asked
            )
        )
        for mode in MODES
    }


def load() -> int:
    """The shipped passages with their vectors; how many."""
    from knowledge.models import Passage, Question
    from knowledge.services.embedding import embed_some
    from knowledge.services.shipped import load_shipped

    passages = load_shipped().passages
    for model in (Passage, Question):
        embed_some(model)
    return passages


def table(sets: dict[str, dict[str, Measured]], passages: int) -> str:
    rows = [
        f"{passages} passages:",
        "",
        "| questions | | number | recall@1 | recall@5 | MRR |",
        "|---|---|---|---|---|---|",
    ]
    names = {"vector": "semantic", "text": "keyword", "fused": "fused"}
    rows += [
        f"| {title} | {names[mode]} | {len(m.ranks)} | {m.recall(1):.3f} | {m.recall(5):.3f} | {m.mrr:.3f} |"
        for title, measured in sets.items()
        for mode, m in measured.items()
    ]
    return "\n".join(rows)


def main() -> None:
    from bench.retrieval import database

    blind, fresh = questions(BLIND_QUESTIONS), fresh_queries()
    asked = {
        "fresh, held out": [(query, keys) for each, query, keys in fresh if is_held_out(each)],
        "fresh, development": [(query, keys) for each, query, keys in fresh if not is_held_out(each)],
        "fresh, all": [(query, keys) for _, query, keys in fresh],
        "blind, held out": [item for item in blind if is_held_out(item[0])],
        "blind, development": [item for item in blind if not is_held_out(item[0])],
        "by the authors of the passages": questions(),
        "blind, passage written later": questions(BLIND_QUESTIONS, later=True),
    }
    with database():
        passages = load()
        sets = {title: measure(items) for title, items in asked.items()}
    for title in ("blind, development", "by the authors of the passages"):
        for (question, expected), rank in zip(asked[title], sets[title]["fused"].ranks, strict=True):
            if rank is None or rank > 5:
                print(f"{rank}: {question} ({', '.join(sorted(expected))})")
    written = table(sets, passages)
    print(written)
    text = DOCUMENT.read_text("utf-8")
    DOCUMENT.write_text(
        re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{written}\n{END}", text, flags=re.DOTALL), "utf-8"
    )


if __name__ == "__main__":
    main()
