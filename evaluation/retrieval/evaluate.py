"""How well retrieval answers the labelled questions: `make accuracy` writes docs/knowledge.md.

A question is answered when one of its expected passages is among the first five (recall@5); MRR is the mean of one over
the rank of the first expected one among the first fifty, 0 where there is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

QUESTIONS = Path(__file__).with_name("questions.toml")
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


def questions() -> list[tuple[str, frozenset[str]]]:
    rows = tomllib.loads(QUESTIONS.read_text("utf-8"))["question"]
    return [(row["question"], frozenset(row["expected"])) for row in rows]


def first_rank(keys: Sequence[str], expected: frozenset[str]) -> int | None:
    return next((rank for rank, key in enumerate(keys, 1) if key in expected), None)


def measure() -> dict[str, Measured]:
    """Of the passages in the database, which must have their vectors."""
    from knowledge.services.search import search

    return {
        mode: Measured(
            tuple(
                first_rank([found.passage.key for found in search(None, question, k=50, mode=mode).found], expected)
                for question, expected in questions()
            )
        )
        for mode in MODES
    }


def load() -> int:
    """The shipped passages with their vectors; how many."""
    from knowledge.models import Passage
    from knowledge.services.embedding import embed_some
    from knowledge.services.shipped import load_shipped

    passages = load_shipped().passages
    while embed_some(Passage) != "none":
        pass
    return passages


def table(measured: dict[str, Measured], passages: int) -> str:
    rows = [
        f"{len(questions())} questions over {passages} passages:",
        "",
        "| | recall@1 | recall@5 | MRR |",
        "|---|---|---|---|",
    ]
    names = {"vector": "by meaning", "text": "by words", "fused": "fused"}
    rows += [f"| {names[mode]} | {m.recall(1):.3f} | {m.recall(5):.3f} | {m.mrr:.3f} |" for mode, m in measured.items()]
    return "\n".join(rows)


def main() -> None:
    from bench.retrieval import database

    with database():
        passages = load()
        measured = measure()
    for (question, expected), rank in zip(questions(), measured["fused"].ranks, strict=True):
        if rank is None or rank > 5:
            print(f"{rank}: {question} ({', '.join(sorted(expected))})")
    written = table(measured, passages)
    print(written)
    text = DOCUMENT.read_text("utf-8")
    DOCUMENT.write_text(
        re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{written}\n{END}", text, flags=re.DOTALL), "utf-8"
    )


if __name__ == "__main__":
    main()
