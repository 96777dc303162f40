"""Sentences of a structured answer, held against the tool results of its run: what is wrong, what is left without it.

The lines are checked as one markdown text, because a sentence takes up what its heading and the lines before it name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proposals.agents import grounding
from proposals.agents.action_claims import claimed_actions
from proposals.agents.grounding import Evidence
from proposals.agents.grounding_claims import sentences
from proposals.agents.workbench import ProposalState

_MARKER = re.compile(r"^(?:[-*+•]|\d+[.)]|#{1,6})\s+")


@dataclass(frozen=True)
class Line:
    """A line of an answer.  results: ids of the tool results that back it; claims: how many of its claims they back;
    support: `proven` where it cites a measured record, `hypothesis` where it says it is one, else empty."""

    text: str
    results: tuple[str, ...] = ()
    claims: int = 0
    support: str = ""


@dataclass(frozen=True)
class UnsupportedSentence:
    """An unsupported sentence.  start, end: in the text; line: of which it is a part, None for a heading."""

    message: str
    start: int
    end: int
    line: int | None


@dataclass(frozen=True)
class Statements:
    """Lines under headings.  places: start and end of each line in the text, in order."""

    text: str
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, sections: Iterable[tuple[str, Sequence[str]]]) -> Statements:
        text = ""
        places: list[tuple[int, int]] = []
        for heading, lines in sections:
            text += f"{chr(10) if text else ''}## {plain(heading)}\n\n"
            for line in lines:
                start = len(text) + 2
                text += f"- {plain(line)}\n"
                places.append((start, len(text) - 1))
        return cls(text, tuple(places))

    def wrong(self, evidence: Evidence, standing: Sequence[ProposalState] = ()) -> list[UnsupportedSentence]:
        """What nothing backs, and what claims that something was done; in the order of the text."""
        wrong = [
            UnsupportedSentence(str(c), c.start, c.end, self._line(c.start, c.end))
            for c in grounding.check(self.text, evidence)
        ]
        for sentence in sentences(self.text):
            wrong += [
                UnsupportedSentence(told, sentence.start, sentence.end, self._line(sentence.start, sentence.end))
                for told in claimed_actions(sentence.text, standing)
            ]
        return sorted(wrong, key=lambda item: item.start)

    def without(self, wrong: Sequence[UnsupportedSentence]) -> list[str]:
        """The lines less the sentences that do not stand; one of which nothing is left is empty."""
        left = []
        for number, (start, end) in enumerate(self.places):
            text = self.text[start:end]
            gone = {(max(w.start, start), min(w.end, end)) for w in wrong if w.line == number}
            for first, last in sorted(gone, reverse=True):
                text = text[: first - start] + text[last - start :]
            left.append(" ".join(text.split()))
        return left

    def backed(self, evidence: Evidence) -> list[Line]:
        """The lines with the results behind them."""
        links = grounding.supports(self.text, evidence)
        order = {item.result_id: place for place, item in enumerate(evidence.results)}
        lines = []
        for number, (start, end) in enumerate(self.places):
            own = [link for link in links if self._line(link.start, link.end) == number]
            results = sorted({result for link in own for result in link.results}, key=order.__getitem__)
            support = next((link.support for link in own if link.support), "")
            lines.append(Line(self.text[start:end], tuple(results), sum(link.claims for link in own), support))
        return lines

    def _line(self, start: int, end: int) -> int | None:
        """The line that a sentence at this place is part of."""
        return next((n for n, (first, last) in enumerate(self.places) if start < last and first < end), None)


def plain(line: str) -> str:
    """On one line, without the marker of a list or heading in front."""
    return _MARKER.sub("", " ".join(line.split()))


def removed_share(wrong: Iterable[UnsupportedSentence], text: str) -> float:
    """How much of a text the sentences that do not stand are, 0 to 1."""
    gone = {(item.start, item.end) for item in wrong if item.line is not None}
    return sum(end - start for start, end in gone) / max(len(text), 1)
