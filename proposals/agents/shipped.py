"""What ships with the product, read from its files: records and passages found by meaning.  No database, no team."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from diagnosis.compare.comparison import Comparison
from history import seeds, similarity, words
from history.case import Case, cases_of
from history.record import Record
from knowledge import passage_file
from knowledge.embedding.minilm import embed
from perfmodel.chips import load_chips
from proposals.agents.retrieval import RecordFound, Unavailable, passage_row
from proposals.agents.tool_result import Result


@cache
def _records() -> tuple[tuple[Record, ...], NDArray[np.float32]]:
    records = seeds.records()
    return records, embed(
        [
            words.embedding_text(each.title, words.keywords(each), each.change, each.effect, " ".join(each.caveats))
            for each in records
        ]
    )


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(cases_of(_records()[0]))


@cache
def _passages() -> tuple[tuple[passage_file.ShippedPassage, ...], NDArray[np.float32]]:
    passages = tuple(item for file in passage_file.read_all() for item in file.passages)
    return passages, embed([each.embedding_text for each in passages])


def _best(vectors: NDArray[np.float32], query: str, allowed: Sequence[int], k: int) -> list[int]:
    """Return the numbers of the k texts that are nearest to a query; its first ones where it is empty."""
    near = vectors @ embed([query])[0] if query.strip() else np.zeros(len(vectors))
    return sorted(allowed, key=lambda number: -near[number])[:k]


class Shipped:
    """`Retrieval` of a run outside any team."""

    def search_history(
        self, query: str, k: int, bottleneck: str = "", chip: str = "", outcome: str = ""
    ) -> tuple[Sequence[RecordFound], Sequence[str]]:
        records, vectors = _records()
        wanted = {"bottleneck": bottleneck, "chip": chip, "outcome": outcome}
        allowed = [
            number
            for number, record in enumerate(records)
            if all(value in ("", getattr(record, name)) for name, value in wanted.items())
        ]
        return [RecordFound(records[number]) for number in _best(vectors, query, allowed[::-1], k)], ()

    def similar_records(self, case: Case, k: int) -> Sequence[RecordFound]:
        records = _records()[0]
        return [
            RecordFound(records[n], (match.reason,), match.expected)
            for n, match in similarity.most_similar(_cases(), case, k)
        ]

    def record(self, id: str) -> Record | None:
        return next((record for record in _records()[0] if record.id == id), None)

    def search_knowledge(
        self, query: str, hardware: str, bottleneck: str, k: int
    ) -> tuple[Sequence[Result], Sequence[str]]:
        passages, vectors = _passages()
        kinds = {"any", hardware, load_chips()[hardware].kind if hardware in load_chips() else hardware}
        allowed = [
            number
            for number, passage in enumerate(passages)
            if (not hardware or kinds & set(passage.hardware)) and (not bottleneck or bottleneck in passage.bottlenecks)
        ]
        return [_passage_found(passages[n]) for n in _best(vectors, query, allowed, k)], ()

    def passage(self, key: str) -> Result | None:
        return next((_passage_found(passage) for passage in _passages()[0] if passage.id == key), None)

    def experiments(self, text: str, k: int) -> Sequence[Result]:
        return ()

    def compare(self, other: int) -> Comparison:
        raise Unavailable("There are no other experiments here to compare with.")

    def launches(self) -> Sequence[Result]:
        return ()


def _passage_found(passage: passage_file.ShippedPassage) -> Result:
    return passage_row(passage, passage.id, passage.source, own=False)
