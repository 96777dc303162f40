"""Numbers inside a quotation: what a text repeats word for word of a passage that it cites.

Only passages of the knowledge base count, and only in the paragraph that cites them: whatever else is repeated word for
word, an op's name or a record, may have been written to be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from proposals.agents.grounding_claims import Number, Sentence
from proposals.agents.grounding_evidence import Evidence

_TOOLS = ("search_knowledge", "passage")
#: Words in a row, the number among them, that must be the passage's.
_TOGETHER = 5


class Quotes:
    """What the sentences of one text quote."""

    def __init__(self, sentences: Sequence[Sentence], evidence: Evidence) -> None:
        self._sentences, self._evidence = sentences, evidence

    @cached_property
    def _passages(self) -> dict[str, tuple[str, str]]:
        """By id the result and the passage's words."""
        found: dict[str, tuple[str, str]] = {}
        for returned in self._evidence.results:
            if returned.name not in _TOOLS or not isinstance(returned.result, dict):
                continue
            rows = returned.result.get("passages")
            for row in rows if isinstance(rows, list) else [returned.result]:
                if isinstance(row, dict) and isinstance(key := row.get("id"), str):
                    parts = (row.get(part) for part in ("title", "source", "text", "formula", "applies_when"))
                    found[key] = (returned.result_id, _words("\n".join(str(part) for part in parts if part)))
        return found

    @cached_property
    def _cited(self) -> dict[int, list[str]]:
        """Ids of passages by the block that names them."""
        found: dict[int, list[str]] = {}
        for key in self._passages:
            named = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
            for sentence in self._sentences:
                if named.search(sentence.text):
                    found.setdefault(sentence.block, []).append(key)
        return found

    def result(self, number: Number, sentence: Sentence) -> str | None:
        """The result that holds the passage in which a number stands with the same words around it."""
        cited = self._cited.get(sentence.block) if self._passages else None
        if not cited:
            return None
        words = _words(sentence.text).split()
        at = len(_words(sentence.text[: number.start + 1]).split()) - 1
        for low in range(max(0, at - _TOGETHER + 1), min(at, len(words) - _TOGETHER) + 1):
            run = " ".join(words[low : low + _TOGETHER])
            for key in cited:
                result, passage = self._passages[key]
                if f" {run} " in f" {passage} ":
                    return result
        return None


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\s*_`|]+", text.lower()))
