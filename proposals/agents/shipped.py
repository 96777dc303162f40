"""What ships with the product, read from its files: records and passages found by words.  No database, no team."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import log

from diagnosis.compare.comparison import Comparison
from history import seeds, similarity
from history.case import Case, cases_of
from history.record import Record
from knowledge import passage_file
from perfmodel.chips import load_chips
from proposals.agents.retrieval import RecordFound, Unavailable, passage_row
from proposals.agents.tool_result import Result

_WORD = re.compile(r"[a-z0-9]+")
#: Endings that do not tell words apart.
_ENDING = re.compile(r"(?<=[a-z]{3})(ations?|ing|ed|es|s)$")
#: Words that occur in any question.
_EMPTY = frozenset(
    _WORD.findall(
        "a an and are as at be by can do does for from how i if in is it me of on or so that the"
        " this to up was we what when where which why will with you your"
    )
)


def _words(text: str) -> list[str]:
    return [_ENDING.sub("", word) for word in _WORD.findall(text.lower()) if word not in _EMPTY]


def _best(counts: Sequence[Counter[str]], query: str, allowed: Sequence[int], k: int) -> list[tuple[int, tuple[str]]]:
    """Return (number, words that matched, in a phrase) of the k best of texts, given by their words.

    A word counts by how rare it is, and more if it occurs often in a text.
    """
    wanted = dict.fromkeys(_words(query))
    rarity = {word: log(1 + len(counts) / (1 + sum(word in count for count in counts))) for word in wanted}
    hits = []
    for number in allowed:
        matched = [word for word in wanted if word in counts[number]]
        score = sum(rarity[word] * counts[number][word] ** 0.5 for word in matched) / counts[number].total() ** 0.25
        if matched:
            hits.append((score, number, (f"words: {', '.join(matched)}",)))
    return [(number, why) for _, number, why in sorted(hits, key=lambda hit: -hit[0])[:k]]


@cache
def _records() -> tuple[tuple[Record, ...], list[Counter[str]]]:
    records = seeds.records()
    texts = (
        " ".join([r.title, r.title, r.change, r.effect, r.model_name, r.chip, r.bottleneck, *r.changes, *r.caveats])
        for r in records
    )
    return records, [Counter(_words(text)) for text in texts]


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(cases_of(_records()[0]))


@cache
def _passages() -> tuple[tuple[passage_file.ShippedPassage, ...], list[Counter[str]]]:
    passages = tuple(item for file in passage_file.read_all() for item in file.passages)
    texts = (" ".join([p.title, p.title, p.text, p.formula, p.applies_when, *p.tags]) for p in passages)
    return passages, [Counter(_words(text)) for text in texts]


class Shipped:
    """`Retrieval` of a run outside any team."""

    def search_history(
        self, query: str, k: int, bottleneck: str = "", chip: str = "", outcome: str = ""
    ) -> tuple[Sequence[RecordFound], Sequence[str]]:
        records, counts = _records()
        wanted = {"bottleneck": bottleneck, "chip": chip, "outcome": outcome}
        allowed = [
            number
            for number, record in enumerate(records)
            if all(value in ("", getattr(record, name)) for name, value in wanted.items())
        ]
        if not _words(query):
            return [RecordFound(records[number]) for number in allowed[::-1][:k]], ()
        return [RecordFound(records[n], why) for n, why in _best(counts, query, allowed, k)], ()

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
        passages, counts = _passages()
        kinds = {"any", hardware, load_chips()[hardware].kind if hardware in load_chips() else hardware}
        allowed = [
            number
            for number, passage in enumerate(passages)
            if (not hardware or kinds & set(passage.hardware)) and (not bottleneck or bottleneck in passage.bottlenecks)
        ]
        return [_passage_found(passages[n]) for n, _ in _best(counts, query, allowed, k)], ()

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
